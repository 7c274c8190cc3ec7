"""Collects what there is to see in text, chat and preference records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from trainproof.preflight.found import Example, Options, Partial, place_of
from trainproof.preflight.near import signatures
from trainproof.preflight.rows import Bad, Row
from trainproof.preflight.screens import screen, script_of
from trainproof.preflight.turns import KINDS, Sample, Turn, layout_of, sample_of

#: shapes of records and labels that are told apart in one piece
MOST_SHAPES = 200
#: characters of a text from which on it may be called repetitive, and of the probes that are looked for in what stands before
LEAST_REPEATING, PROBE = 200, 40
_REFUSALS = (
    "I'm sorry, but I can't", "I’m sorry, but I can’t", "I'm sorry, I can't", "I cannot assist", "I can't assist", "I can't help with",
    "I'm sorry, but I cannot", "I am sorry, but I cannot", "Sorry, I can't", "I'm unable to", "I am unable to", "I cannot help with",
    "I won't be able to", "I cannot provide", "I can't provide", "I'm not able to",
)  # fmt: skip
_IDENTITY = (
    "AI language model",
    "As an AI ",
    "as an AI assistant",
    "trained by OpenAI",
    "developed by OpenAI",
    "created by Anthropic",
    "large language model",
)
_PREFIX = re.compile(
    r"\s*(?:###? ?(?:Response|Assistant|Instruction|Human)|Assistant|ASSISTANT|Human|HUMAN|User|USER|GPT|Bot|AI) ?:"
)
_PREFIX_STARTS = frozenset("#AHUGB")
_LABELS = ("label", "labels", "category", "class")


class TextCollector:
    """One piece of text, chat or preference data. layout: of the data as a whole; a record of another one is told."""

    def __init__(self, kind: str, layout: str | None, options: Options, cut: Callable[[str], int] | None) -> None:
        self.kind, self.layout, self.options, self.cut = kind, layout, options, cut
        self.out = Partial(options.keep)
        self._places: list[int] = []
        self._hashes: list[bytes] = []
        self._sizes: list[tuple[int, int, int, int]] = []
        self._texts: list[str] = []
        self._scripts: list[str] = []
        self._shapes: dict[tuple[Any, ...], list[int]] = {}

    def collect(self, file: int, rows: Iterable[Row]) -> Partial:
        """What is in the rows of a piece."""
        out = self.out
        for row, record, replaced in rows:
            place = place_of(file, row)
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
        self._flush()
        return out

    def _record(self, place: int, record: dict[str, Any]) -> None:
        found = layout_of(frozenset(record))
        shape = (*record, *map(type, record.values()))
        seen = self._shapes.get(shape)
        if seen is not None:
            seen.append(place)
        elif len(self._shapes) < MOST_SHAPES:
            self._shapes[shape] = [place]
        if found is None or (self.layout is not None and found[0] != self.layout and KINDS[found[0]] != self.kind):
            self.out.hit("TPD005", place, f"fields {', '.join(map(str, list(record)[:8]))}")
            return
        if found[0] != self.layout and self.layout is not None:
            self.out.hit("TPD005", place, f"{found[0]} instead of {self.layout}")
        for name in _LABELS:
            if isinstance(label := record.get(name), (str, bool, int)):
                self.out.count("label", str(label)[:60])
                break
        self._sample(place, sample_of(record, *found))

    def _sample(self, place: int, sample: Sample) -> None:
        out, turns = self.out, sample.turns
        for code, excerpt in sample.problems:
            out.hit(code, place, excerpt)
        text = "\n".join([turn.text for turn in turns])
        if sample.other is not None:
            self._pair(place, turns, sample.other)
            text = f"{text}\n{sample.other[-1].text if sample.other else ''}"
        if not text.strip():
            if self.kind == "text":
                out.hit("TPD101", place)
            return
        encoded = text.encode("utf-8", "surrogatepass")
        for code, excerpt in screen(text, encoded):
            out.hit(code, place, excerpt)
        answer = ""
        if self.kind != "text" and turns and turns[-1].role == "assistant":
            answer = turns[-1].text
            self._answer(place, turns, answer)
        said = answer or (text if self.kind == "text" else "")
        if (loop := repeated(said)) is not None:
            out.hit("TPD110", place, loop)
        self._numbers(place, text, encoded, turns, answer)

    def _numbers(self, place: int, text: str, encoded: bytes, turns: list[Turn], answer: str) -> None:
        prompt = (
            text[: len(text) - len(answer)]
            if answer and text.endswith(answer)
            else "\n".join(t.text for t in turns[:-1])
        )
        self._places.append(place)
        self._hashes.append(_digest(encoded))
        self._hashes.append(_hash(prompt) if prompt.strip() else bytes(8))
        self._texts.append(text)
        self._scripts.append(script_of(text))
        before = tokens = 0
        if self.cut is not None:
            tokens = self.cut(text)
            before = self.cut(prompt) if prompt else 0
        self._sizes.append((len(text), len(answer), tokens, before))

    def _answer(self, place: int, turns: list[Turn], answer: str) -> None:
        out = self.out
        if 0 < len(answer.strip()) <= 1 and not answer.strip().isalnum():
            out.hit("TPD114", place, answer)
        asked = turns[-2].text if len(turns) > 1 else ""
        if len(answer) >= 40 and (answer == asked or (len(asked) >= 40 and answer.startswith(asked))):
            out.hit("TPD130", place, answer)
        head = answer[:60].lstrip()
        if head.startswith(_REFUSALS):
            out.hit("TPD132", place, head)
        if ("AI" in answer or "language model" in answer or "Anthropic" in answer) and any(
            p in answer for p in _IDENTITY
        ):
            out.hit("TPD133", place, head)
        if head[:1] in _PREFIX_STARTS and _PREFIX.match(answer):
            out.hit("TPD137", place, head)
        if "<think>" in answer and answer.count("<think>") != answer.count("</think>"):
            out.hit("TPD138", place, head)
        if "```" in answer and answer.count("```") % 2:
            out.hit("TPD139", place, answer[-60:])

    def _pair(self, place: int, chosen: list[Turn], rejected: list[Turn]) -> None:
        out = self.out
        if not chosen or not rejected:
            return
        good, bad = chosen[-1].text, rejected[-1].text
        if good.strip() and good.strip() == bad.strip():
            out.hit("TPD151", place, good)
        elif [turn.text for turn in chosen[:-1]] != [turn.text for turn in rejected[:-1]]:
            out.hit("TPD153", place, chosen[0].text)
        prompt = "\n".join([turn.text for turn in chosen[:-1]])
        ends = [np.frombuffer(_hash(f"{prompt}\n{text}"), np.uint64) for text in (good, bad)]
        out.add_table(
            "pairs", place=np.array([place]), chosen=ends[0], rejected=ends[1], longer=np.array([len(good) - len(bad)])
        )

    def _flush(self) -> None:
        """The tables of the piece."""
        for shape, places in self._shapes.items():
            label = _shape_label(shape)
            self.out.count("shapes", label, len(places))
            self.out.examples[f"shape {label}"] = [
                Example(place, float("nan"), "") for place in places[: self.out.keep]
            ]
        if not self._places:
            return
        hashes = np.frombuffer(b"".join(self._hashes), np.uint64).reshape(-1, 2)
        sizes = np.array(self._sizes, np.int32)
        place = np.array(self._places, np.int64)
        self.out.add_table(
            "samples", place=place, text=hashes[:, 0], prompt=hashes[:, 1], length=sizes[:, 0], answer=sizes[:, 1],
            tokens=sizes[:, 2], before=sizes[:, 3], script=np.array(self._scripts, "U10"),
        )  # fmt: skip
        if self.options.near:
            self._near(place, hashes[:, 0])

    def _near(self, place: Any, text: Any) -> None:
        signature, big = signatures(self._texts)
        self.out.add_table("near", place=place[big], text=text[big], signature=signature[big])


def repeated(text: str) -> str | None:
    """The first ten words, when at least half of the text's windows of ten words are not new."""
    end = len(text)
    if end < LEAST_REPEATING or all(text.find(text[at : at + PROBE]) == at for at in (end // 2, end - PROBE)):
        return None
    words = text.split()
    windows = [tuple(words[i : i + 10]) for i in range(len(words) - 9)]
    if len(windows) < 30:
        return None
    return " ".join(words[:10]) if len(set(windows)) <= 0.5 * len(windows) else None


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


def _hash(text: str) -> bytes:
    return _digest(text.encode("utf-8", "surrogatepass"))


def _digest(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=8).digest()
