"""Collects what there is to see in the clips of a speech pack."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from trainproof.preflight.audio import AudioError, Measures, Sound, measured, read_part, read_sound
from trainproof.preflight.clip import Clip
from trainproof.preflight.found import Example, Options, Partial, place_of
from trainproof.preflight.labels import Labels
from trainproof.preflight.screens import screen

_DIGITS = re.compile(r"\d")
_SHORT = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|etc|e\.g|i\.e|vs|approx|Nr|bzw|usw|z\.B)\.(?=\s|$|,)|\b(?:km|kg|cm|mm|kHz|Hz)\b|[%&@$€£§#]"
)
_SPACES = re.compile(r"^\s|\s$|\s{2,}|[\t\r\n]")
_COLUMNS = tuple(Measures._fields)


class SpeechCollector:
    """Some clips of one manifest."""

    def __init__(self, options: Options) -> None:
        self.out = Partial(options.keep)
        self._rows: list[tuple[float, ...]] = []
        self._keys: list[tuple[int, ...]] = []
        self._labels = Labels(options.tokenizer) if options.trainer else None

    def collect(self, file: int, clips: Sequence[Clip]) -> Partial:
        """What is in the clips."""
        for clip in clips:
            self.out.rows += 1
            self._clip(place_of(file, clip.row), clip)
        self._flush()
        return self.out

    def _clip(self, place: int, clip: Clip) -> None:
        out = self.out
        if clip.wrong is not None:
            out.hit(clip.wrong.code, place, clip.wrong.why)
            return
        text = clip.text or ""
        self._text(place, text)
        try:
            sound = _sound(clip)
        except AudioError as error:
            out.hit(error.code, place, f"{clip.audio}: {error}")
            return
        measures = measured(sound)
        if self._labels is not None:
            self._labels.add(place, text, measures.seconds, clip.seconds)
        name = clip.audio or ""
        ending = os.path.splitext(name)[1].lower().lstrip(".")
        if sound.lacks > 0:
            out.hit("TPD202", place, f"{name} lacks {sound.lacks / sound.rate:.2f} s")
        if sound.real and ending and ending != sound.real and f".{ending}" in (".wav", ".flac", ".mp3", ".ogg"):
            out.hit("TPD207", place, f"{name} is {sound.real}")
        if clip.seconds is not None and abs(clip.seconds - measures.seconds) > max(0.1, 0.05 * measures.seconds):
            out.hit(
                "TPD222", place, f"{name} is {measures.seconds:.2f} s, declared {clip.seconds:.2f} s", measures.seconds
            )
        said = " ".join(text.lower().split())
        self._rows.append(tuple(float(value) for value in measures[:-3]))
        self._keys.append(
            (
                place,
                measures.digest,
                measures.shape,
                measures.signs,
                _number(said) if said else 0,
                len(text.strip()),
                _number(os.path.basename(name) + ("" if clip.start is None else f" {clip.start}")),
                _number(clip.speaker),
            )
        )
        out.count("speakers", clip.speaker[:64])

    def _text(self, place: int, text: str) -> None:
        out = self.out
        if not text.strip():
            out.hit("TPD231", place)
            return
        out.count("texts", "")
        for code, excerpt in screen(text, text.encode("utf-8", "surrogatepass")):
            out.hit(code, place, excerpt)
        for code, pattern in (("TPD232", _DIGITS), ("TPD233", _SHORT), ("TPD234", _SPACES)):
            if seen := pattern.search(text):
                out.hit(code, place, text[max(0, seen.start() - 20) : seen.end() + 20])
        counts = out.counters.setdefault("characters", Counter())
        for character in {*"".join(text.split())}:
            counts[character] += 1
            if counts[character] <= out.keep:
                out.example(f"character {character}", Example(place, math.nan, text[:60]))

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._labels is not None:
            self.out.add_table("labels", **self._labels.table())
        numbers = np.array(self._rows)
        keys = np.array(self._keys, np.int64)
        columns = {name: numbers[:, i] for i, name in enumerate(_COLUMNS[:-3])}
        self.out.add_table(
            "clips", place=keys[:, 0], digest=keys[:, 1], shape=keys[:, 2], signs=keys[:, 3], text=keys[:, 4],
            characters=keys[:, 5], name=keys[:, 6], speaker=keys[:, 7], **columns,
        )  # fmt: skip


def _sound(clip: Clip) -> Sound:
    if clip.start is not None and clip.seconds is not None:
        return read_part(clip.audio or "", clip.start, clip.seconds)
    return read_sound(clip.audio or "", clip.data)


def _number(text: str) -> int:
    """63 bits of a text."""
    return int(xxh3_64_intdigest(text.encode("utf-8", "replace")) >> 1)
