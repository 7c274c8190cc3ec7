"""Chat and preference data with known faults, and its clean twin, from sentences of the documentation that ships with Python.

python -m tools.text_faults FOLDER [ROWS]
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

Record = dict[str, Any]
Fault = Callable[[Record, Record], "Record | str | bytes"]


def sentences() -> list[str]:
    """Plain English sentences of 6 to 30 words."""
    text = " ".join(" ".join(topic.split()) for topic in topics.values())
    found = re.findall(r"(?<=\. )[A-Z][a-z]+(?: [a-z]+,?){5,29}\.", text)
    return sorted({sentence for sentence in found if "language model" not in sentence})


def clean_chats(rows: int, seed: int = 7) -> Iterator[Record]:
    """Conversations of one or two exchanges, no two alike."""
    rng = random.Random(seed)
    pool = sentences()
    for row in range(rows):
        turns = [{"role": "system", "content": "You answer questions on a language."}] if row % 3 else []
        for _ in range(1 + row % 2):
            asked = " ".join(rng.sample(pool, 2))
            turns += [
                {"role": "user", "content": f"What does the text number {rng.randrange(10**6)} say? {asked}"},
                {"role": "assistant", "content": " ".join(rng.sample(pool, rng.randint(2, 6)))},
            ]
        yield {"messages": turns}


def clean_pairs(rows: int, seed: int = 8) -> Iterator[Record]:
    """Preference pairs of two different answers to one prompt."""
    rng = random.Random(seed)
    pool = sentences()
    for _ in range(rows):
        first, second, *others = rng.sample(pool, rng.randint(6, 9))  # no sentence is on both sides
        half = len(others) // 2
        sides = [" ".join([first, *others[:half]]), " ".join([second, *others[half:]])]
        yield {
            "prompt": f"Number {rng.randrange(10**6)}: {' '.join(rng.sample(pool, 2))}",
            "chosen": sides[0],
            "rejected": sides[1],
        }


def _last(change: Callable[[str], str], role: int = -1) -> Fault:
    """A fault in the text of the last turn."""

    def fault(record: Record, _: Record) -> Record:
        record["messages"][role]["content"] = change(record["messages"][role]["content"])
        return record

    return fault


def _turns(change: Callable[[list[Any]], Any]) -> Fault:
    def fault(record: Record, _: Record) -> Record:
        record["messages"] = change(record["messages"])
        return record

    return fault


def _role(role: str, at: int = -1) -> Fault:
    def fault(record: Record, _: Record) -> Record:
        record["messages"][at]["role"] = role
        return record

    return fault


def _calls(arguments: str, answers: str) -> Fault:
    def fault(record: Record, _: Record) -> Record:
        call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": arguments}}
        asked, answer = record["messages"][-2:]
        record["messages"] = [
            asked,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": answers, "content": "found"},
            answer,
        ]
        return record

    return fault


def _near(record: Record, other: Record) -> Record:
    words = other["messages"][-1]["content"].split()
    changed = json.loads(json.dumps(other))
    changed["messages"][-1]["content"] = " ".join([*words[:-2], "differently", "put."])
    return dict(changed)


def _other_answer(record: Record, other: Record) -> Record:
    return {"messages": [*other["messages"][:-1], record["messages"][-1]]}


def _bad_bytes(record: Record, _: Record) -> bytes:
    return json.dumps(record).encode().replace(b"the", b"th\xe9", 1)


#: name -> (the check that names it, how a record is broken; it is given the record and an earlier one)
CHAT_FAULTS: dict[str, tuple[str, Fault]] = {
    "cut JSON": ("TPD003", lambda r, _: json.dumps(r)[:-7]),
    "a list instead of an object": ("TPD003", lambda r, _: json.dumps([r])),
    "Latin-1 byte": ("TPD002", _bad_bytes),
    "other layout": ("TPD005", lambda r, _: {"instruction": "Say it.", "output": r["messages"][-1]["content"]}),
    "no known field": ("TPD005", lambda r, _: {"dialogue": r["messages"]}),
    "content is an object": ("TPD006", _last(lambda text: {"text": text})),  # type: ignore[arg-type,return-value]  # that is the fault
    "messages are text": ("TPD006", _turns(str)),
    "null bytes": ("TPD102", _last(lambda text: text[:20] + "\0" + text[20:])),
    "replacement characters": ("TPD103", _last(lambda text: text.replace("e", "\ufffd", 2))),
    "mojibake": ("TPD104", _last(lambda text: text + " Caf\u00c3\u00a9 d\u00e2\u20ac\u2122Orsay.")),
    "zero-width spaces": ("TPD105", _last(lambda text: text.replace(" ", "\u200b ", 3))),
    "hidden tags": ("TPD105", _last(lambda text: text + "".join(chr(0xE0000 + ord(c)) for c in "obey"))),
    "Cyrillic letters in Latin words": ("TPD106", _last(lambda text: text + " p\u0430ypal")),
    "HTML": ("TPD107", _last(lambda text: f"<div class='x'>{text}</div>&nbsp;")),
    "exact duplicate": ("TPD108", lambda _, other: other),
    "near duplicate": ("TPD109", _near),
    "loop": ("TPD110", _last(lambda text: " ".join([" ".join(text.split()[:12])] * 9))),
    "far too long": ("TPD111", _last(lambda text: " ".join(f"{text} {i}" for i in range(400)))),
    "e-mail address": ("TPD112", _last(lambda text: text + " Write to jane.roe@firma-roe.de.")),
    "card number": ("TPD112", _last(lambda text: text + " Pay with 4539 1488 0343 6467.")),
    "access key": ("TPD113", _last(lambda text: text + " Key: AKIA" + "QWERTYUIOPASDFGH")),
    "an answer of one sign": ("TPD114", _last(lambda _: "-")),
    "escaped twice": ("TPD115", _last(lambda text: text + " caf\\u00e9")),
    "another script": ("TPD116", _turns(lambda turns: [{**turn, "content": "\u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c " * 9} for turn in turns])),
    "decomposed accents": ("TPD117", _last(lambda text: text + " cafe\u0301".replace("e\u0301", "e\u0301"))),
    "lone surrogate": ("TPD119", _last(lambda text: text + " \ud83d")),
    "no turns": ("TPD120", _turns(lambda _: [])),
    "no assistant": ("TPD121", _turns(lambda turns: [turns[-2]])),
    "unknown role": ("TPD122", _role("narrator")),
    "no content": ("TPD123", _turns(lambda turns: [*turns[:-1], {"role": "assistant"}])),
    "a turn is text": ("TPD123", _turns(lambda turns: [*turns[:-1], "well"])),
    "same role twice": ("TPD124", _turns(lambda turns: [turns[-2], turns[-2], turns[-1]])),
    "ends with the user": ("TPD125", _turns(lambda turns: [*turns, turns[-2]])),
    "assistant first": ("TPD126", _turns(lambda turns: turns[-1:] + turns[-2:])),
    "system last": ("TPD127", _turns(lambda turns: [turns[-2], {"role": "system", "content": "Be brief."}, turns[-1]])),
    "empty answer": ("TPD128", _last(lambda _: "")),
    "empty question": ("TPD128", _last(lambda _: "  ", -2)),
    "template tokens": ("TPD129", _last(lambda text: text + "<|im_end|>")),
    "template tokens of Llama": ("TPD129", _last(lambda text: f"[INST] {text} [/INST]")),
    "answer is the prompt": ("TPD130", _turns(lambda turns: [*turns[:-1], {"role": "assistant", "content": turns[-2]["content"]}])),
    "another answer": ("TPD131", _other_answer),
    "refusal": ("TPD132", _last(lambda text: "I'm sorry, but I can't help with that. " + text)),
    "identity": ("TPD133", _last(lambda text: "As an AI language model, I say: " + text)),
    "arguments are no JSON": ("TPD134", _calls("{name: x", "call_1")),
    "a result without its call": ("TPD134", _calls("{}", "call_9")),
    "role prefix": ("TPD137", _last(lambda text: "### Response: " + text)),
    "open block of thoughts": ("TPD138", _last(lambda text: "<think>" + text)),
    "open code fence": ("TPD139", _last(lambda text: text + "\n```python\nprint(")),
}  # fmt: skip

PAIR_FAULTS: dict[str, tuple[str, Fault]] = {
    "both sides the same": ("TPD151", lambda r, _: {**r, "rejected": r["chosen"]}),
    "no chosen answer": ("TPD152", lambda r, _: {**r, "chosen": ""}),
    "sides with other prompts": (
        "TPD153",
        lambda r, other: {
            "chosen": [{"role": "user", "content": r["prompt"]}, {"role": "assistant", "content": r["chosen"]}],
            "rejected": [{"role": "user", "content": other["prompt"]}, {"role": "assistant", "content": r["rejected"]}],
        },
    ),
    "swapped": ("TPD156", lambda _, other: {**other, "chosen": other["rejected"], "rejected": other["chosen"]}),
}


def with_faults(
    clean: list[Record], faults: dict[str, tuple[str, Fault]], each: int, seed: int = 9
) -> tuple[list[bytes], dict[str, list[int]]]:
    """(lines, name of each fault -> its rows from 1): `each` records of every kind are broken, spread over the data."""
    rng = random.Random(seed)
    rows = iter(rng.sample(range(len(clean) // 2, len(clean)), each * len(faults)))
    lines: list[bytes] = [json.dumps(record).encode() for record in clean]
    where: dict[str, list[int]] = {}
    earlier = iter(rng.sample(range(len(clean) // 2), each * len(faults)))
    for name, (_, fault) in faults.items():
        for _ in range(each):
            row = next(rows)
            broken = fault(json.loads(lines[row]), json.loads(lines[next(earlier)]))
            lines[row] = (
                broken
                if isinstance(broken, bytes)
                else broken.encode()
                if isinstance(broken, str)
                else json.dumps(broken).encode()
            )
            where.setdefault(name, []).append(row + 1)
    return lines, where


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def main(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, clean, faults in (("chat", clean_chats, CHAT_FAULTS), ("pairs", clean_pairs, PAIR_FAULTS)):
        records = list(clean(rows))
        write(folder / f"{name}-clean.jsonl", [json.dumps(record).encode() for record in records])
        lines, where = with_faults(records, faults, max(3, rows // 20_000))
        write(folder / f"{name}-faults.jsonl", lines)
        (folder / f"{name}-faults.truth.json").write_text(json.dumps(where, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200_000)
