"""Collects what there is to see in text, chat and preference records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import sub
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from trainproof.preflight.found import Example, Options, Partial, place_of
from trainproof.preflight.near import MinHash
from trainproof.preflight.rows import Alike, Bad, Row
from trainproof.preflight.screens import SCRIPT_NUMBERS, screen, script_of
from trainproof.preflight.sieve import suspects
from trainproof.preflight.turns import (
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
#: shapes of records and labels that are told apart in one piece
MOST_SHAPES = 200
#: characters of a prompt from which on an answer may not begin with it
LEAST_ECHO = 40
#: characters of a text from which on it may be called repetitive, and of the probes that are looked for in what stands before
LEAST_REPEATING, PROBE = 200, 40
#: characters of a probe that is found sooner; what it does not find, no longer one does
SHORT_PROBE = 16
#: characters of an answer from which on it is no single sign
LEAST_PLAIN = 40
_REFUSALS = (
    "I'm sorry, but I can't", "I’m sorry, but I can’t", "I'm sorry, I can't", "I cannot assist", "I can't assist", "I can't help with",
    "I'm sorry, but I cannot", "I am sorry, but I cannot", "Sorry, I can't", "I'm unable to", "I am unable to", "I cannot help with",
    "I won't be able to", "I cannot provide", "I can't provide", "I'm not able to",
)  # fmt: skip
_NOTHING = bytes(8)
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
#: what those, and refusals, begin with
_HEADS = frozenset(("##", "As", "AS", "Hu", "HU", "Us", "US", "GP", "Bo", "AI", "I'", "I’", "I ", "So"))


class _Batch:
    """Texts that are looked at together, as columns: where they are, the answers that they end in, and how many characters the prompts
    have that they begin with."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.texts: list[str] = []
        self.answers: list[str] = []
        self.prompts: list[int] = []
        self.size = 0  # characters of those that were added one by one


class TextCollector:
    """One piece of text, chat or preference data. layout: of the data as a whole; a record of another one is told."""

    def __init__(self, kind: str, layout: str | None, options: Options, cut: Callable[[str], int] | None) -> None:
        self.kind, self.layout, self.options, self.cut = kind, layout, options, cut
        self.out = Partial(options.keep)
        self._batch = _Batch()
        self._minhash = MinHash()
        self._pairs: list[tuple[int, int, int, int]] = []
        self._shapes: dict[tuple[Any, ...], int] = {}

    def collect(self, file: int, rows: Iterable[Row]) -> Partial:
        """What is in the rows of a piece."""
        out = self.out
        for row, record, replaced in rows:
            place = place_of(file, row)
            if isinstance(record, Alike):
                self._conversations(place, record.records)
                self._flush()
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
            if self._batch.size >= BATCH_CHARACTERS:
                self._flush()
        self._flush()
        for shape, count in self._shapes.items():
            out.count("shapes", _shape_label(shape), count)
        out.compact()
        return out

    def _conversations(self, first: int, records: list[Conversation]) -> None:
        """Records of plain turns, in rows that follow one another: most have nothing that is worth a longer look."""
        self.out.rows += len(records)
        texts: list[list[str]] = []
        roles: list[tuple[str, ...]] = []
        for record in records:  # in one pass, while the record is in the processor's cache
            turns = record.turns
            texts.append([turn.content for turn in turns])
            roles.append(tuple([turn.role for turn in turns]))
        if all(map(are_regular, set(roles))) and all(map(str.strip, chain.from_iterable(texts))):
            self._regular(first, texts, records)
            return
        start = 0
        for i, each in enumerate(texts):
            if not (are_regular(roles[i]) and all(map(str.strip, each))):
                self._regular(first + start, texts[start:i], records[start:i])
                self._record(first + i, msgspec.to_builtins(records[i]))
                start = i + 1
        self._regular(first + start, texts[start:], records[start:])

    def _regular(self, first: int, turns: list[list[str]], records: list[Conversation]) -> None:
        """Conversations that end with an answer to something and have no empty turns."""
        if not records:
            return
        places, answers = range(first, first + len(turns)), [each[-1] for each in turns]
        self._shape(places, records[0].shape)
        for i in [
            i
            for i, answer in enumerate(answers)
            if answer[:2] in _HEADS or len(answer) < LEAST_PLAIN or answer[0].isspace()
        ]:
            self._head(places[i], answers[i])
        for i in [i for i, each in enumerate(turns) if each[-1].startswith(each[-2])]:
            self._echo(places[i], turns[i])
        for i in [
            i for i, answer in enumerate(answers) if len(answer) >= LEAST_REPEATING and _may_repeat(answer, SHORT_PROBE)
        ]:
            self._loop(places[i], answers[i])
        texts = list(map("\n".join, turns))
        batch = self._batch
        batch.places += places
        batch.texts += texts
        batch.answers += answers
        batch.prompts += map(sub, map(len, texts), map(len, answers))

    def _record(self, place: int, record: dict[str, Any]) -> None:
        found = layout_of(frozenset(record))
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
        out, turns, batch = self.out, sample.turns, self._batch
        for code, excerpt in sample.problems:
            out.hit(code, place, excerpt)
        texts = [turn.text for turn in turns]
        text = "\n".join(texts)
        if sample.other is not None:
            self._pair(place, texts, [turn.text for turn in sample.other])
            text = f"{text}\n{sample.other[-1].text if sample.other else ''}"
        if not text.strip():
            if self.kind == "text":
                out.hit("TPD101", place)
            return
        answer = ""
        if self.kind != "text" and turns and turns[-1].role == "assistant":
            answer = texts[-1]
            self._head(place, answer)
            self._echo(place, texts)
        self._loop(place, answer or (text if self.kind == "text" else ""))
        batch.size += len(text)
        batch.places.append(place)
        batch.texts.append(text)
        batch.answers.append(answer)
        prompt = text[: -len(answer)] if answer and text.endswith(answer) else "\n".join(texts[:-1])
        batch.prompts.append(len(prompt) if prompt.strip() else 0)

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

    def _echo(self, place: int, texts: list[str]) -> None:
        if len(texts) > 1 and len(texts[-2]) >= LEAST_ECHO and texts[-1].startswith(texts[-2]):
            self.out.hit("TPD130", place, texts[-1])

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

    def _flush(self) -> None:
        """Look at the batch as a whole, and keep its numbers."""
        batch, self._batch = self._batch, _Batch()
        if self._pairs:
            place, chosen, rejected, longer = zip(*self._pairs, strict=True)
            self._pairs = []
            self.out.add_table(
                "pairs", place=np.array(place, np.int64), chosen=np.array(chosen, np.uint64),
                rejected=np.array(rejected, np.uint64), longer=np.array(longer, np.int64),
            )  # fmt: skip
        if batch.texts:
            encoded = [text.encode("utf-8", "surrogatepass") for text in batch.texts]
            for i in suspects(encoded):
                self._suspect(batch.places[i], batch.texts[i], encoded[i], batch.answers[i])
            self._numbers(batch, encoded)

    def _suspect(self, place: int, text: str, encoded: bytes, answer: str) -> None:
        out = self.out
        for code, excerpt in screen(text, encoded):
            out.hit(code, place, excerpt)
        if any(phrase in answer for phrase in _IDENTITY):
            out.hit("TPD133", place, answer[:60].lstrip())
        if answer.count("<think>") != answer.count("</think>") and "<think>" in answer:
            out.hit("TPD138", place, answer[:60].lstrip())
        if answer.count("```") % 2:
            out.hit("TPD139", place, answer[-60:])

    def _numbers(self, batch: _Batch, encoded: Sequence[bytes]) -> None:
        """A row of the tables for every text."""
        place, text, answer = np.array(batch.places, np.int64), _hashes(encoded), _each(len, batch.answers)
        tokens = before = np.zeros(len(place), np.int32)
        if self.cut is not None:
            tokens = _each(self.cut, batch.texts)
            before = _each(self.cut, [text[:end] for text, end in zip(batch.texts, batch.prompts, strict=True)])
        self.out.add_table(
            "samples", place=place, text=text, prompt=_hashes(_prompts(batch, encoded)), length=_each(len, batch.texts),
            answer=answer, tokens=tokens, before=before, script=_scripts(batch.texts),
        )  # fmt: skip
        if self.options.near:
            signature, big = self._minhash.signatures(encoded)
            self.out.add_table("near", place=place[big], text=text[big], signature=signature[big])


def _scripts(texts: Sequence[str]) -> NDArray[np.uint8]:
    """The number of the script of each text."""
    scripts = np.full(len(texts), SCRIPT_NUMBERS["Latin"], np.uint8)
    for i in [i for i, text in enumerate(texts) if not (text.isascii() and text[0].isalpha())]:
        scripts[i] = SCRIPT_NUMBERS[script_of(texts[i])]
    return scripts


def _prompts(batch: _Batch, encoded: Sequence[bytes]) -> list[bytes]:
    """The prompt of each text as UTF-8."""
    prompts = [data[:end] for data, end in zip(encoded, batch.prompts, strict=True)]
    for i in [i for i, text in enumerate(batch.texts) if not text.isascii()]:
        prompts[i] = batch.texts[i][: batch.prompts[i]].encode("utf-8", "surrogatepass")
    return prompts


def _each(measure: Callable[[str], int], texts: Sequence[str]) -> NDArray[np.int32]:
    return np.fromiter(map(measure, texts), np.int32, len(texts))


def _hashes(texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """64 bits of each text; 0 for an empty one."""
    return np.frombuffer(b"".join([xxh3_64_digest(text) if text else _NOTHING for text in texts]), np.uint64)


def repeated(text: str) -> str | None:
    """The first ten words, when at least half of the text's windows of ten words are not new."""
    if len(text) < LEAST_REPEATING or not _may_repeat(text):
        return None
    words = text.split()
    windows = [tuple(words[i : i + 10]) for i in range(len(words) - 9)]
    if len(windows) < 30:
        return None
    return " ".join(words[:10]) if len(set(windows)) <= 0.5 * len(windows) else None


def _may_repeat(text: str, probe: int = PROBE) -> bool:
    """Whether the end of the text, or its middle, stands before too. probe: characters of each that are looked for."""
    end = len(text)
    middle = end // 2
    return text.find(text[-probe:]) != end - probe or text.find(text[middle : middle + probe]) != middle


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
