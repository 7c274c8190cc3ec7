"""Layouts of chat, preference and text records, as turns of (role, text); and what is wrong with the order of roles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from trainproof.preflight.loose import media_of, shown_part, strings_in, strings_of

#: role names of the datasets in use -> ours
ROLES = {
    **dict.fromkeys(("user", "human", "prompter", "usr"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot", "model", "chatgpt", "bard", "bing"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
#: fields beside the turns that checks look at
LABELS = ("label", "labels", "class")
MEDIA = ("image", "images", "video", "videos", "audio", "audios")
ASIDE = (*LABELS, *MEDIA, "tools")
#: layout -> the fields that make it, in the order in which they are looked for; the last one of a pair is the answer
LAYOUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "preference": (("chosen", "rejected"), ("preferred_output", "non_preferred_output"), ("response_j", "response_k")),
    "messages": (("messages",),),
    "sharegpt": (("conversations",), ("conversation",)),
    "alpaca": (("instruction", "output"), ("instruction", "response")),
    "prompt-completion": (
        ("prompt", "completion"),
        ("prompt", "response"),
        ("prompt", "answer"),
        ("question", "answer"),
        ("query", "response"),
        ("input", "output"),
    ),
    "text": (("text",), ("content",), ("sentence",)),
    "segments": (("segments",),),
    "prompt": (("prompt",),),
}
#: records with texts in fields of no layout above; as a layout of data, never of one record among others
FIELDS = "fields"
#: texts of turns of the assistant that call a tool
_CALL = re.compile(
    r"tool_call|function_call|<function=|\[TOOL_CALLS\]|<\|python_tag\||<invoke|^\s*[\[{]|```|\bAction:|<(?:code|search|execute)",
    re.MULTILINE,
)
KINDS = {
    "preference": "preference",
    "messages": "chat",
    "sharegpt": "chat",
    "alpaca": "chat",
    "prompt-completion": "chat",
    "text": "text",
    "segments": "text",
    "prompt": "text",
    FIELDS: "text",
}


class Turn(NamedTuple):
    role: str
    text: str


class Sample(NamedTuple):
    """A record as turns; `problems` are (check, what is there). `other` is the rejected side of a preference pair."""

    turns: list[Turn]
    problems: list[tuple[str, str]]
    other: list[Turn] | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A turn that has one of the usual roles and a text, and nothing else."""

    role: Literal["user", "assistant", "system", "human", "gpt"]
    content: str


class SharedMessage(Message, rename={"role": "from", "content": "value"}, gc=False):
    """The same as ShareGPT names it."""


class Conversation(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of turns. `shape`: the names and types of the fields of such a record; `is_plain`: it has no other field."""

    turns: list[Message]
    shape: ClassVar[tuple[Any, ...]] = ()
    is_plain: ClassVar[bool] = False


def shape_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The names of the fields and the types of their values."""
    return (*record, *map(type, record.values()))


def conversation_type(record: Any, layout: str | None) -> type[Conversation] | None:
    """What records as this one can be decoded as, which is faster than as dictionaries; None when it is no plain conversation.

    Records that differ are refused by the decoder.
    """
    found = layout_of(frozenset(record)) if isinstance(record, dict) else None
    if (
        found is None
        or found[0] != layout
        or layout not in ("messages", "sharegpt")
        or not record.keys().isdisjoint(ASIDE)
    ):
        return None
    message = Message if layout == "messages" else SharedMessage
    try:
        msgspec.convert(record[found[1][0]], list[message])  # type: ignore[valid-type]  # a type that is chosen at run time
    except msgspec.ValidationError:
        return None
    fields: list[tuple[str, Any]] = [("turns", list[message])]  # type: ignore[valid-type]  # as above
    names = {"turns": found[1][0]}
    for name, value in record.items():
        if name != found[1][0]:
            names[f"field{len(fields)}"] = name
            fields.append((f"field{len(fields)}", type(value)))
    made: type[Any] = msgspec.defstruct(
        "Record", fields, bases=(Conversation,), namespace={"shape": shape_of(record), "is_plain": len(record) == 1},
        rename=names, forbid_unknown_fields=True, gc=False,
    )  # fmt: skip
    return made


@lru_cache(maxsize=65536)
def are_regular(roles: tuple[str, ...]) -> bool:
    """Whether there is nothing wrong with the order of the roles of a Conversation."""
    return not order_problems(tuple([ROLES[role] for role in roles]))


@lru_cache(maxsize=1024)
def layout_of(fields: frozenset[str]) -> tuple[str, tuple[str, ...]] | None:
    """The layout that the fields of a record make, and which of them it reads; None for none."""
    for layout, choices in LAYOUTS.items():
        for names in choices:
            if fields.issuperset(names):
                return layout, names
    return None


def sample_of(record: Mapping[str, Any], layout: str, names: tuple[str, ...]) -> Sample:
    """The record as turns; a picture or a sound beside them is a part of the first one, by its hash."""
    sample = _sample_of(record, layout, names)
    shown = media_of(record, MEDIA)
    if not shown or not sample.turns:
        return sample
    first = sample.turns[0]
    other = sample.other and [first._replace(text=f"{shown}\n{sample.other[0].text}"), *sample.other[1:]]
    return sample._replace(turns=[first._replace(text=f"{shown}\n{first.text}"), *sample.turns[1:]], other=other)


def _sample_of(record: Mapping[str, Any], layout: str, names: tuple[str, ...]) -> Sample:
    if layout in ("messages", "sharegpt"):
        return _chat(record[names[0]], bool(record.get("tools")))
    if layout == "preference":
        return _pair(record, names)
    problems: list[tuple[str, str]] = []
    if layout == "text":
        return Sample([Turn("text", _text(record[names[0]], names[0], problems))], problems)
    if layout in ("segments", "prompt"):
        return Sample([Turn("text", _joined(record[names[0]], names[0], problems))], problems)
    if layout == FIELDS:
        return Sample([Turn("text", "\n".join(strings_of(record)))], [])
    return _answered(record, layout, names)


def _joined(value: Any, name: str, problems: list[tuple[str, str]]) -> str:
    """A text, or the texts of segments or turns."""
    return "\n".join(strings_in(value)) if isinstance(value, list) else _text(value, name, problems)


def _text(value: Any, name: str, problems: list[tuple[str, str]]) -> str:
    if isinstance(value, str):
        return value
    if value is not None:
        problems.append(("TPD006", f"{name} is {_kind(value)}"))
    return ""


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def _answered(record: Mapping[str, Any], layout: str, names: tuple[str, ...]) -> Sample:
    problems: list[tuple[str, str]] = []
    if isinstance(record[names[0]], list):
        asked = _chat(record[names[0]], False, answered=False)
        answer = record[names[1]]
        replied = _chat(answer, False, asked=False) if isinstance(answer, list) else None
        turns = replied.turns if replied else [Turn("assistant", _text(answer, names[1], problems))]
        return Sample([*asked.turns, *turns], [*asked.problems, *(replied.problems if replied else problems)])
    prompt, answer = (_text(record[name], name, problems) for name in names)
    extra = record.get("input") if layout == "alpaca" else None
    if extra and isinstance(extra, str):
        prompt = f"{prompt}\n{extra}"
    turns = [Turn("user", prompt), Turn("assistant", answer)]
    if isinstance(system := record.get("system"), str) and system:
        turns.insert(0, Turn("system", system))
    problems += [("TPD128", f"{names[i]} is empty") for i, turn in enumerate(turns[-2:]) if not turn.text.strip()]
    return Sample(turns, problems)


#: where the prompt of a pair may be
_PROMPTS = ("prompt", "question", "instruction", "input")


def _pair(record: Mapping[str, Any], names: tuple[str, ...]) -> Sample:
    sides: list[list[Turn]] = []
    problems: list[tuple[str, str]] = []
    prompt = next((record[name] for name in _PROMPTS if name in record), None)
    if prompt is None and isinstance(record[names[0]], dict):
        prompt = record.get("conversations", record.get("messages"))
    if isinstance(prompt, dict):
        prompt = prompt.get("messages")
    for name in names:
        value = record[name]
        if isinstance(value, list):
            side = _chat(value, False, asked=prompt is None)
            problems += side.problems
            sides.append(side.turns)
        elif isinstance(value, dict):
            turn = _turn({"role": "assistant", **value}, problems)
            sides.append([turn] if turn else [])
        else:
            sides.append([Turn("assistant", _text(value, name, problems))])
        if not sides[-1] or not sides[-1][-1].text.strip():
            problems.append(("TPD152", f"{name} is empty"))
    if isinstance(prompt, str) and isinstance(extra := record.get("input"), str) and extra != prompt:
        prompt = f"{prompt}\n{extra}"
    asked = [Turn("user", prompt)] if isinstance(prompt, str) else []
    if isinstance(prompt, list):
        asked = _chat(prompt, False, answered=False).turns
    return Sample([*asked, *sides[0]], problems, [*asked, *sides[1]])


def _chat(messages: Any, tools: bool, *, answered: bool = True, asked: bool = True) -> Sample:
    if not isinstance(messages, list):
        return Sample([], [("TPD006", f"the messages are {_kind(messages)}")])
    turns: list[Turn] = []
    problems: list[tuple[str, str]] = []
    for message in messages:
        turn = _turn(message, problems)
        if turn is not None:
            turns.append(turn)
    roles = tuple([turn.role for turn in turns])
    problems += order_problems(roles, answered, asked)
    if "tool" in roles or "call" in roles or tools:
        problems += _tool_problems(messages)
    return Sample(turns, problems)


def _turn(message: Any, problems: list[tuple[str, str]]) -> Turn | None:
    try:
        role = message.get("role") or message.get("from")
        content = message["content"] if "content" in message else message.get("value")
        role = ROLES.get(role) or ROLES.get(role.strip().lower()) or role
    except (AttributeError, TypeError):
        problems.append(
            ("TPD123", f"a turn is {_kind(message)}" if not isinstance(message, dict) else "a turn has no role")
        )
        return None
    if isinstance(content, str):
        text = content
    elif isinstance(content, list):
        text = "\n".join(map(shown_part, content))
    elif content is None:
        text = ""
        if "content" not in message and "value" not in message and not _calls(message):
            problems.append(("TPD123", f"a turn of {role} has no content"))
            return None
    else:
        problems.append(("TPD006", f"the content is {_kind(content)}"))
        return None
    if not text.strip() and not (role == "tool" or _calls(message) or role == "system"):
        problems.append(("TPD128", f"an empty turn of {role}"))
    return Turn(role, text)


def _calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call") or message.get("reasoning_content"))


def _calls_in_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content") or message.get("value")
    return isinstance(content, str) and _CALL.search(content) is not None


@lru_cache(maxsize=65536)
def order_problems(roles: tuple[str, ...], answered: bool = True, asked: bool = True) -> tuple[tuple[str, str], ...]:
    """What is wrong with the order of the roles. answered: the last turn has to be the assistant's; asked: the first may not."""
    if not roles:
        return (("TPD120", "no turns"),)
    return tuple(_order_problems(roles, answered, asked))


def _order_problems(roles: tuple[str, ...], answered: bool, asked: bool) -> Iterator[tuple[str, str]]:
    known = set(ROLES.values())
    unknown = next((role for role in roles if role not in known), None)
    shape = " ".join(roles[:8])
    if unknown is not None:
        yield "TPD122", f"role {unknown}"
        return
    spoken = [role for role in roles if role != "system"]
    if answered and not {"assistant", "call"} & set(roles):
        yield "TPD121", shape
    elif answered and roles[-1] not in ("assistant", "call"):
        yield "TPD125", shape
    if "system" in roles[1:]:
        yield "TPD127", shape
    if asked and spoken and spoken[0] == "assistant":
        yield "TPD126", shape
    if any(a == b and a != "tool" for a, b in zip(roles, roles[1:], strict=False)):
        yield "TPD124", shape


def _tool_problems(messages: list[Any]) -> Iterator[tuple[str, str]]:
    """Calls whose arguments are no JSON, and results of calls that nobody made."""
    import json

    made: set[str] = set()
    named = called = False
    for message in messages:
        if not isinstance(message, dict):
            continue
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            called = True
            function = call.get("function", call) if isinstance(call, dict) else {}
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                made.add(call["id"])
                named = True
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str):
                try:
                    json.loads(arguments)
                except (ValueError, RecursionError):
                    yield "TPD134", f"arguments are no JSON: {arguments[:60]}"
        role = message.get("role") or message.get("from")
        ours = ROLES.get(role) if isinstance(role, str) else None
        called = called or ours == "call" or _calls(message) or _calls_in_text(message)
        if ours == "tool":
            if not called:
                yield "TPD134", "a tool's result before any call"
            answers = message.get("tool_call_id")
            if named and isinstance(answers, str) and answers not in made:
                yield "TPD134", f"a result of the call {answers[:40]}, which nobody made"
