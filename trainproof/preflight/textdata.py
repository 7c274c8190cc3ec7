"""Collects what there is to see in text, chat and preference records."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from trainproof.preflight.found import Example, Options, Partial, place_of
from trainproof.preflight.rows import Alike, Bad, Row
from trainproof.preflight.screens import screen
from trainproof.preflight.sieve import suspect_lines, suspects
from trainproof.preflight.texts import Kept, Texts
from trainproof.preflight.turns import (
    FIELDS,
    KINDS,
    LABELS,
    Conversation,
    Sample,
    Turn,
    are_regular,
    layout_of,
    sample_of,
    shape_of,
)

#: characters of texts that are looked at together, one text at least
BATCH_CHARACTERS = 100_000
#: records whose numbers are made tables together
KEPT_RECORDS = 8192
#: shapes of records and labels that are told apart in one piece
MOST_SHAPES = 200
#: characters of a prompt from which on an answer may not begin with it
LEAST_ECHO = 40
#: characters of a text from which on it may be called repetitive, and of the probe that is looked for in what stands before
LEAST_REPEATING, PROBE = 200, 16
#: characters of an answer from which on it is no single sign
LEAST_PLAIN = 40
_REFUSALS = (
    "I'm sorry, but I can't", "I’m sorry, but I can’t", "I'm sorry, I can't", "I cannot assist", "I can't assist", "I can't help with",
    "I'm sorry, but I cannot", "I am sorry, but I cannot", "Sorry, I can't", "I'm unable to", "I am unable to", "I cannot help with",
    "I won't be able to", "I cannot provide", "I can't provide", "I'm not able to",
)  # fmt: skip
#: what names a model as such; the others only where the answer begins as _HEADS
_IDENTITY = ("AI language model", "As an AI ", "as an AI assistant", "trained by OpenAI", "developed by OpenAI")
_OTHER_IDENTITY = ("created by Anthropic", "large language model")
_PREFIX = re.compile(
    r"\s*(?:###? ?(?:Response|Assistant|Instruction|Human)|Assistant|ASSISTANT|Human|HUMAN|User|USER|GPT|Bot|AI) ?:"
)
#: how those begin, refusals, and what names a model without "AI"
_HEADS = frozenset(("##", "As", "AS", "Hu", "HU", "Us", "US", "GP", "Bo", "AI", "I'", "I’", "I ", "So"))


class TextCollector:
    """One piece of text, chat or preference data. layout: of the data as a whole; a record of another one is told."""

    def __init__(self, kind: str, layout: str | None, options: Options, cut: Callable[[str], int] | None) -> None:
        self.kind, self.layout = kind, layout
        self.out = Partial(options.keep)
        self._texts = Texts()
        self._kept = Kept(cut, options.near)
        self._pairs: list[tuple[int, int, int, int]] = []
        self._shapes: dict[tuple[Any, ...], int] = {}
        self._size = 0  # characters of the texts that were added one by one

    def collect(self, file: int, rows: Iterable[Row]) -> Partial:
        """What is in the rows of a piece."""
        out = self.out
        for row, record, replaced in rows:
            place = place_of(file, row)
            if isinstance(record, Alike):
                self._conversations(place, record.records, record.lines)
                continue
            out.rows += 1
            if replaced:
                out.hit("TPD002", place)
            if isinstance(record, Bad):
                out.hit(record.code, place, record.why)
            elif isinstance(record, str):
                self._sample(place, Sample([Turn("text", record)], []))
            elif isinstance(record, dict):
                self._record(place, record)
            else:
                out.hit("TPD003", place, f"a {type(record).__name__} instead of an object: {str(record)[:60]}")
            if self._size >= BATCH_CHARACTERS:
                self._flush()
        self._flush()
        self._keep()
        for shape, count in self._shapes.items():
            out.count("shapes", _shape_label(shape), count)
        out.compact()
        return out

    def _conversations(self, first: int, records: list[Conversation], lines: bytes) -> None:
        """Records of plain turns, in rows that follow one another: most have nothing that is worth a longer look."""
        self.out.rows += len(records)
        kind = type(records[0])
        rows = [record.turns for record in records]
        roles = [tuple([turn.role for turn in turns]) for turns in rows]
        turns = [turn.content for turns in rows for turn in turns]
        counts = list(map(len, rows))
        self._flush()
        if all(map(are_regular, set(roles))) and all(turns) and not any(map(str.isspace, turns)):
            self._regular(first, kind.shape, turns, counts)
            self._flush(suspect_lines(lines) if kind.is_plain else None)
            return
        bounds, start = [0, *accumulate(counts)], 0
        odd = [i for i, each in enumerate(rows) if not (are_regular(roles[i]) and all(t.content.strip() for t in each))]
        for i in odd:
            self._regular(first + start, kind.shape, turns[bounds[start] : bounds[i]], counts[start:i])
            self._record(first + i, msgspec.to_builtins(records[i]))
            start = i + 1
        self._regular(first + start, kind.shape, turns[bounds[start] :], counts[start:])
        self._flush()

    def _regular(self, first: int, shape: tuple[Any, ...], turns: list[str], counts: list[int]) -> None:
        """Conversations that end with an answer to something and have no empty turns."""
        if not counts:
            return
        places, ends = range(first, first + len(counts)), list(accumulate(counts))
        asked, answers = [turns[end - 2] for end in ends], [turns[end - 1] for end in ends]
        self._shape(places, shape)
        for i in [i for i, a in enumerate(answers) if a[:2] in _HEADS or len(a) < LEAST_PLAIN or a < "!" or a > "\x7f"]:
            self._head(places[i], answers[i])
        for i in [i for i, echoes in enumerate(map(str.startswith, answers, asked)) if echoes]:
            self._echo(places[i], asked[i], answers[i])
        for i in [i for i, answer in enumerate(answers) if _may_repeat(answer)]:
            self._loop(places[i], answers[i])
        self._texts.add(places, turns, counts, [count - 1 for count in counts], answers)

    def _record(self, place: int, record: dict[str, Any]) -> None:
        found = layout_of(frozenset(record)) or ((FIELDS, ()) if self.layout == FIELDS else None)
        self._shape((place,), shape_of(record))
        if found is None or (self.layout is not None and found[0] != self.layout and KINDS[found[0]] != self.kind):
            self.out.hit("TPD005", place, f"fields {', '.join(map(str, list(record)[:8]))}")
            return
        if found[0] != self.layout and self.layout is not None:
            self.out.hit("TPD005", place, f"{found[0]} instead of {self.layout}")
        for name in LABELS:
            if isinstance(label := record.get(name), (str, bool, int)):
                self.out.count("label", str(label)[:60])
                break
        self._sample(place, sample_of(record, *found))

    def _shape(self, places: Sequence[int], shape: tuple[Any, ...]) -> None:
        count = self._shapes.get(shape, 0)
        if count or len(self._shapes) < MOST_SHAPES:
            self._shapes[shape] = count + len(places)
            if count < self.out.keep:
                label = f"shape {_shape_label(shape)}"
                for place in places[: self.out.keep - count]:
                    self.out.example(label, Example(place, float("nan"), ""))

    def _sample(self, place: int, sample: Sample) -> None:
        out, turns = self.out, [turn.text for turn in sample.turns]
        for code, excerpt in sample.problems:
            out.hit(code, place, excerpt)
        answer = turns[-1] if self.kind != "text" and turns and sample.turns[-1].role == "assistant" else ""
        asked = max(0, len(turns) - 1)
        if sample.other is not None:
            self._pair(place, turns, [turn.text for turn in sample.other])
            turns.append(sample.other[-1].text if sample.other else "")
        text = "\n".join(turns)
        if not text.strip():
            if self.kind == "text":
                out.hit("TPD101", place)
            return
        if answer and asked:  # else it may be a whole conversation in one text
            self._head(place, answer)
            self._echo(place, turns[asked - 1], answer)
        self._loop(place, answer or (text if self.kind == "text" else ""))
        self._size += len(text)
        self._texts.add([place], turns, [len(turns)], [asked if any(map(str.strip, turns[:asked])) else 0], [answer])

    def _loop(self, place: int, text: str) -> None:
        if (loop := repeated(text)) is not None:
            self.out.hit("TPD110", place, loop)

    def _head(self, place: int, answer: str) -> None:
        if len(sign := answer.strip()) == 1 and not sign.isalnum():
            self.out.hit("TPD114", place, answer)
        head = answer[:60].lstrip()
        if head.startswith(_REFUSALS):
            self.out.hit("TPD132", place, head)
        if _PREFIX.match(answer):
            self.out.hit("TPD137", place, head)
        if head[:2] in _HEADS and _says(answer, _OTHER_IDENTITY) and not _says(answer, _IDENTITY):
            self.out.hit("TPD133", place, head)

    def _echo(self, place: int, asked: str, answer: str) -> None:
        if len(asked) >= LEAST_ECHO and answer.startswith(asked):
            self.out.hit("TPD130", place, answer)

    def _pair(self, place: int, chosen: list[str], rejected: list[str]) -> None:
        out = self.out
        if not chosen or not rejected:
            return
        good, bad = chosen[-1], rejected[-1]
        if good.strip() and good.strip() == bad.strip():
            out.hit("TPD151", place, good)
        elif chosen[:-1] != rejected[:-1]:
            out.hit("TPD153", place, chosen[0])
        prompt = "\n".join(chosen[:-1])
        ends = [xxh3_64_intdigest(f"{prompt}\n{text}".encode("utf-8", "surrogatepass")) for text in (good, bad)]
        self._pairs.append((place, ends[0], ends[1], len(good) - len(bad)))

    def _flush(self, suspected: list[int] | None = None) -> None:
        """Look at the texts as a whole, and keep their numbers. suspected: which records may hold what patterns find, where that is known."""
        texts, self._texts, self._size = self._texts, Texts(), 0
        if not texts.places:
            return
        encoded, bounds = texts.encoded(), texts.bounds()
        if suspected is None:
            suspected = sorted({bisect(bounds, turn) - 1 for turn in suspects(texts.turns, encoded)})
        for i in suspected:
            text = "\n".join(texts.turns[bounds[i] : bounds[i + 1]])
            self._suspect(texts.places[i], text, texts.answers[i])
        self._kept.add(texts, encoded)
        if len(self._kept) >= KEPT_RECORDS:
            self._keep()

    def _keep(self) -> None:
        """The numbers as tables."""
        if self._kept:
            for name, columns in self._kept.tables().items():
                self.out.add_table(name, **columns)
        if self._pairs:
            place, chosen, rejected, longer = zip(*self._pairs, strict=True)
            self._pairs = []
            self.out.add_table(
                "pairs", place=np.array(place, np.int64), chosen=np.array(chosen, np.uint64),
                rejected=np.array(rejected, np.uint64), longer=np.array(longer, np.int64),
            )  # fmt: skip

    def _suspect(self, place: int, text: str, answer: str) -> None:
        out = self.out
        for code, excerpt in screen(text, text.encode("utf-8", "surrogatepass")):
            out.hit(code, place, excerpt)
        if "AI" in answer and _says(answer, _IDENTITY):
            out.hit("TPD133", place, answer[:60].lstrip())
        if "<think>" in answer and answer.count("<think>") != answer.count("</think>"):
            out.hit("TPD138", place, answer[:60].lstrip())
        if answer.count("```") % 2:
            out.hit("TPD139", place, answer[-60:])


def _says(text: str, phrases: Sequence[str]) -> bool:
    return any(phrase in text for phrase in phrases)


def repeated(text: str) -> str | None:
    """The first ten words, when at least half of the text's windows of ten words are not new."""
    if not _may_repeat(text):
        return None
    words = text.split()
    windows = [tuple(words[i : i + 10]) for i in range(len(words) - 9)]
    if len(windows) < 30:
        return None
    return " ".join(words[:10]) if len(set(windows)) <= 0.5 * len(windows) else None


def _may_repeat(text: str) -> bool:
    """Whether what stands at three quarters of the text stands before too, as it does in what loops to its end, or nearly."""
    probe = len(text) * 3 // 4
    return len(text) >= LEAST_REPEATING and text.find(text[probe : probe + PROBE]) < probe


def _shape_label(shape: tuple[Any, ...]) -> str:
    half = len(shape) // 2
    kinds = [
        (str(name), _JSON_TYPES.get(kind, kind.__name__)) for name, kind in zip(shape[:half], shape[half:], strict=True)
    ]
    return msgspec.json.encode(sorted(kinds)).decode()


_JSON_TYPES = {
    str: "text",
    dict: "object",
    list: "list",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}
