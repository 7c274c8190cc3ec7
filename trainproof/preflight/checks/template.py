"""The chat template of a tokenizer, by a probe that was rendered in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator

from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.encoding import Tokenized
from trainproof.preflight.found import seen
from trainproof.preflight.templates import MARKERS, PROBE, Rendering, markers_of
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds


def _rendering(found: Tokenized) -> Rendering:
    if found.rendering is None:
        raise CannotTell("no chat template")
    if found.rendering.error is not None:
        raise CannotTell("the chat template cannot be rendered")
    return found.rendering


def _answers(whole: str) -> Iterator[tuple[str, str]]:
    """The answers of the probe that a rendering has, and what comes after each."""
    for turn in PROBE:
        _, there, after = whole.partition(turn["content"])
        if turn["role"] == "assistant" and there:
            yield turn["content"], after.strip()


@check("TPT121", "template-fails", FAIL, fix="Repair the template; TRL, vLLM and others render it as this does.")
def template_fails(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The chat template cannot be rendered for a conversation of two exchanges, neither with a system turn nor without.

    It is rendered in a sandbox, in a process of its own, for at most 20 seconds.

    Why it matters
    Training stops at it, or goes on without it.

    False positives
    Templates that need tools or other variables.
    """
    if found.rendering is None:
        raise CannotTell("no chat template")
    if found.rendering.error is not None:
        yield seen(FAIL, f"the chat template cannot be rendered: {found.rendering.error}", ())


@check(
    "TPT122",
    "no-generation-prompt",
    WARN,
    fix="Let add_generation_prompt append the beginning of the assistant's turn.",
)
def no_generation_prompt(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template gives the same with and without add_generation_prompt.

    Why it matters
    The model is asked to go on with the user's turn.

    False positives
    Templates whose user turns end with the marker of the answer, such as [/INST].
    """
    rendering = _rendering(found)
    if rendering.open == rendering.closed and not rendering.open.rstrip().endswith("[/INST]"):
        yield seen(WARN, "the template does not know add_generation_prompt", ())


@check(
    "TPT123",
    "no-end-after-answer",
    FAIL,
    fix="Let the template end each answer with the end token, or declare the one that it writes.",
)
def no_end_after_answer(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template does not put the end token after every answer, nor another marker than the one that begins the next turn.

    Why it matters
    The model never learns to end its turn.

    False positives
    Trainers that append the end token themselves.
    """
    whole, opens, closed = _rendering(found)[:3]
    opener = MARKERS.match(opens[len(closed) :].strip())
    ends = found.tokenizer.vocabulary.get(found.tokenizer.special.get("eos", -1))
    pieces = set(found.tokenizer.vocabulary.values())
    for answer, after in _answers(whole):
        marker = MARKERS.match(after)
        ended = (ends and after.startswith(ends)) or (
            marker and marker[0] in pieces and not (opener and marker[0] == opener[0])
        )
        if not ended:
            said = f"after the answer {answer!r} the template writes {after[:40]!r}"
            yield seen(FAIL, f"{said}, expected the end token {ends or '(none)'}", ())
            return


@check(
    "TPT124",
    "double-begin-token",
    FAIL,
    fix="Encode rendered text without special tokens, or take the begin token out of the template.",
)
def double_begin_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template writes the begin token, and the tokenizer is set to add it (add_bos_token) too; or the template writes it twice.

    Why it matters
    Two begin tokens are a text that the base model never saw.

    False positives
    Trainers that know it and encode without special tokens: told as INFO when only the setting says so, as Mistral's does.
    """
    rendering = _rendering(found)
    begin = found.tokenizer.vocabulary.get(found.tokenizer.special.get("bos", -1))
    if not begin:
        raise CannotTell("no begin token is declared")
    if rendering.whole.startswith(begin + begin):
        yield seen(FAIL, f"the template begins with {begin} twice", ())
    elif rendering.whole.startswith(begin) and found.tokenizer.settings.get("add_bos_token") is True:
        yield seen(INFO, f"the template writes {begin}, and add_bos_token adds it again", ())


@check("TPT125", "turn-lost", FAIL, fix="Repair the template, or leave that role out of the data.")
def turn_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template leaves a turn out, or puts them in another order.

    Why it matters
    The model is trained on conversations that nobody had.

    False positives
    Templates that refuse a system turn by raising, as Gemma's does, are told as INFO; they stop at data that has one.
    """
    whole, _, _, _, refuses = _rendering(found)
    if refuses:
        yield seen(INFO, f"the template refuses a system turn: {refuses}", ())
    turns = PROBE[1:] if refuses else PROBE
    places = [whole.find(message["content"]) for message in turns]
    lost = [f"{message['role']} {message['content']}" for message, at in zip(turns, places, strict=True) if at < 0]
    if lost:
        yield seen(
            FAIL if len(lost) > 1 or PROBE[0]["content"] not in lost[0] else WARN,
            f"the template leaves out: {', '.join(lost)}",
            (),
        )
    elif places != sorted(places):
        yield seen(FAIL, "the template puts turns in another order", ())


@check(
    "TPT126",
    "marker-in-pieces",
    FAIL,
    fix="Add the markers of the template to the tokenizer, before anything is tokenized, and train their rows.",
)
def marker_in_pieces(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A marker that the chat template writes, such as <|im_start|>, is split into several tokens.

    Why it matters
    The base model never saw such pieces as a marker, and a user can write them.

    False positives
    Templates whose markers are plain text on purpose: [INST] is told as INFO, others as WARN where each answer ends with the end token.
    """
    whole = _rendering(found).whole
    broken = sorted({m for m in markers_of(whole) if len(found.tokenizer.encode(m)) > 1})
    if broken:
        plain = all(marker.startswith("[") for marker in broken)
        ends = found.tokenizer.vocabulary.get(found.tokenizer.special.get("eos", -1), "")
        ended = ends not in ("", *broken) and all(after.startswith(ends) for _, after in _answers(whole))
        severity = INFO if plain else WARN if ended else FAIL
        yield seen(severity, f"markers of the template are split into pieces: {', '.join(broken[:6])}", ())


@check(
    "TPT127",
    "answer-marker-merges",
    WARN,
    fix="Begin the answer with a special token, or give the collator the tokens that the marker has in a text.",
)
def answer_marker_merges(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """What the template writes before an answer is other tokens within a text than by itself.

    Why it matters
    Collators look for the tokens of the marker to mask the prompt: they find nothing, and mask the whole record.

    False positives
    Masks that are made from positions in the text.
    """
    rendering = _rendering(found)
    marker = rendering.open[len(rendering.closed) :]
    if not marker or not rendering.open.startswith(rendering.closed):
        raise CannotTell("the template writes nothing before an answer")
    alone, whole = (list(found.tokenizer.encode(text)) for text in (marker, rendering.open))
    if whole[-len(alone) :] != alone:
        pieces = [found.tokenizer.vocabulary.get(number, "?") for number in whole[-len(alone) :]]
        yield seen(WARN, f"{marker[:40]!r} is other tokens after a question: {' '.join(pieces)[:80]}", ())
