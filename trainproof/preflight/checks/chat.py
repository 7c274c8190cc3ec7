"""Conversations: roles, turns, answers."""

from __future__ import annotations

from collections.abc import Iterator

from trainproof.preflight.checks.registry import DIALOGUE, FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import Found
from trainproof.rules.registry import Sighting
from trainproof.thresholds import DataThresholds


@check("TPD120", "no-turns", FAIL, *DIALOGUE, fix="Leave it out.")
def no_turns(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A conversation has no turns.

    Why it matters
    There is nothing to learn; templates fail on it.

    False positives
    None known.
    """
    yield from found.told("TPD120", FAIL, "have no turns")


@check("TPD121", "no-assistant-turn", FAIL, *DIALOGUE, fix="Leave it out, or add the answer.")
def no_assistant_turn(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A conversation has no turn of the assistant.

    Why it matters
    With the prompt masked there is not one label; the loss of the record is 0 or NaN.

    False positives
    Data of prompts alone, for reinforcement learning.
    """
    yield from found.told("TPD121", FAIL, "have no turn of the assistant")


@check("TPD122", "unknown-role", FAIL, *DIALOGUE, fix="Rename it: system, user, assistant, tool.")
def unknown_role(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A role is none that templates know.

    Why it matters
    Templates drop the turn without a word, or stop.

    False positives
    A template of your own with roles of its own.
    """
    yield from found.told("TPD122", FAIL, "have a role that is not known")


@check("TPD123", "malformed-turn", FAIL, *DIALOGUE, fix="Write the turn again.")
def malformed_turn(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A turn has no role or no content.

    Why it matters
    Trainers stop at it, or render the word None.

    False positives
    None known.
    """
    yield from found.told("TPD123", FAIL, "have a turn without a role or without content")


@check("TPD124", "repeated-role", FAIL, *DIALOGUE, fix="Join the turns, or find the one that is missing.")
def repeated_role(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """Two turns in a row have the same role.

    Why it matters
    Many templates refuse it, others glue the turns together; often a turn between them was lost.

    False positives
    Chats in which people write several messages in a row.
    """
    yield from found.told("TPD124", FAIL, "have the same role twice in a row")


@check("TPD125", "ends-without-answer", FAIL, *DIALOGUE, fix="Cut the last turn, or add the answer.")
def ends_without_answer(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A conversation does not end with the assistant.

    Why it matters
    The last turn teaches nothing; with a loss on all tokens the model learns to speak for the user.

    False positives
    Data of prompts alone.
    """
    yield from found.told("TPD125", FAIL, "do not end with the assistant")


@check("TPD126", "starts-with-assistant", WARN, *DIALOGUE, fix="Add the question, or drop the turn.")
def starts_with_assistant(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The assistant speaks first.

    Why it matters
    Templates that demand a user first refuse it; often the first question was cut off.

    False positives
    Role play with a greeting.
    """
    yield from found.told("TPD126", WARN, "start with the assistant")


@check("TPD127", "system-not-first", WARN, *DIALOGUE, fix="Put it first, or make it a turn of the user.")
def system_not_first(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A system turn is not the first one.

    Why it matters
    Templates ignore it, refuse it, or move it.

    False positives
    Trainers that change instructions on purpose.
    """
    yield from found.told("TPD127", WARN, "have a system turn after the first")


@check("TPD128", "empty-turn", FAIL, *DIALOGUE, fix="Leave the record out.")
def empty_turn(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A turn of the user or of the assistant is empty.

    Why it matters
    An empty answer teaches the model to end at once.

    False positives
    Turns that only call tools are not counted.
    """
    yield from found.told("TPD128", FAIL, "have an empty turn")


@check(
    "TPD129",
    "template-tokens",
    WARN,
    "speech",
    *TEXTUAL,
    fix="Take the turns from before they were rendered, or remove the markers.",
)
def template_tokens(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text contains the markers of a chat template.

    Why it matters
    The tokenizer reads them as the real markers: a turn ends in the middle of a text. Often data was rendered twice.

    False positives
    Texts about chat templates; plain texts that were rendered on purpose, throughout, are told as INFO.
    """
    meant = found.kind == "text" and found.share(len(found.places("TPD129"))) >= t.odd_rare
    yield from found.told("TPD129", INFO if meant else WARN, "have markers of a chat template", odd_rare=t.odd_rare)


@check("TPD130", "answer-repeats-prompt", WARN, *DIALOGUE, fix="Cut the prompt off.")
def answer_repeats_prompt(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer is its prompt, or begins with all of it.

    Why it matters
    The model learns to repeat; often the prompt was not cut off a generated text.

    False positives
    Tasks such as completing or correcting a text.
    """
    yield from found.told("TPD130", WARN, "have an answer that repeats its prompt")


@check("TPD114", "empty-answer", WARN, *DIALOGUE, fix="Leave the record out.")
def empty_answer(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer is one sign, neither letter nor digit.

    Why it matters
    It is a placeholder of an export, and is learned as an answer.

    False positives
    Tasks whose answers are signs, which are told as INFO.
    """
    severity = WARN if found.share(len(found.places("TPD114"))) < t.odd_rare else INFO
    yield from found.told("TPD114", severity, "have an answer of one sign", odd_rare=t.odd_rare)


@check("TPD132", "refusals", INFO, *DIALOGUE, fix="Leave them out, unless they are meant.")
def refusals(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer begins as refusals do.

    Why it matters
    A share of refusals makes a model refuse.

    False positives
    Data that teaches to refuse on purpose, hence INFO.
    """
    yield from found.told("TPD132", INFO, "begin as refusals do")


@check("TPD133", "identity-phrases", INFO, *DIALOGUE, fix="Leave them out, unless they are meant.")
def identity_phrases(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer says that a language model of some maker speaks.

    "Large language model" and "created by Anthropic" count in answers that begin with I or As.

    Why it matters
    The model will say so of itself.

    False positives
    Texts about language models, hence INFO.
    """
    yield from found.told("TPD133", INFO, "speak of themselves as a language model")


@check("TPD134", "broken-tool-call", FAIL, *DIALOGUE, fix="Write the call again.")
def broken_tool_call(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A tool call has arguments that are no JSON, or a result has no call.

    Why it matters
    The model learns calls that no parser accepts.

    False positives
    None known.
    """
    yield from found.told("TPD134", FAIL, "have a broken tool call")


@check("TPD137", "role-prefix", WARN, *DIALOGUE, fix="Cut the prefix off.")
def role_prefix(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer begins with the name of a role, such as Assistant:, or a heading such as ### Response:.

    Why it matters
    Data was rendered before; the template adds the role once more.

    False positives
    Plays and interviews.
    """
    yield from found.told("TPD137", WARN, "begin with the name of a role")


@check("TPD138", "open-think-block", WARN, *DIALOGUE, fix="Leave the record out, or close the block.")
def open_think_block(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer opens a block of thoughts that it does not close, or the other way round.

    Why it matters
    The model learns to think without end, and parsers hide the whole answer.

    False positives
    None known.
    """
    yield from found.told("TPD138", WARN, "have a block of thoughts that is open at one end")


@check("TPD139", "open-code-fence", INFO, *DIALOGUE, fix="Leave it out, if it was cut.")
def open_code_fence(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """An answer has an odd number of code fences.

    Why it matters
    It was cut off, or is badly formed.

    False positives
    Texts about Markdown, hence INFO.
    """
    yield from found.told("TPD139", INFO, "have a code fence that is open")
