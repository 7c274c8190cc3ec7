"""A speech pack with known faults, and its clean twin: synthesised voices reading sentences of Python's documentation.

The voices are harmonics under a syllable envelope with bursts of noise: enough for measurements, no real speech.

python -m tools.speech_faults FOLDER [CLIPS]
"""

from __future__ import annotations

import json
import random
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tools.text_faults import sentences

RATE = 16_000
Samples = NDArray[np.float64]


class Item(NamedTuple):
    """A clip to be written: its samples, its text, and how they are stored."""

    sound: Samples
    text: str
    rate: int = RATE
    bits: int = 16
    cut: int = 0  # bytes that are left off the end
    raw: bytes | None = None  # what is written instead
    write: bool = True
    columns: str = ""  # more columns in the manifest


Fault = Callable[[Item, Item], Item]


def voice(text: str, rng: np.random.Generator, pitch: float) -> Samples:
    """Speech-like sound: 14 characters a second, a syllable every fifth of a second, silence of 0.1 s around it."""
    seconds = len(text) / 14
    time = np.arange(int(seconds * RATE)) / RATE
    wave = 2 * np.pi * pitch * np.cumsum(1 + 0.05 * np.sin(2 * np.pi * 0.7 * time)) / RATE
    tones = sum(np.sin(k * wave + rng.uniform(0, 6)) / k for k in range(1, 25))
    syllables = np.clip(np.sin(2 * np.pi * 2.6 * time + rng.uniform(0, 6)), 0, None) ** 0.6
    for word in range(int(seconds * 2.5)):
        syllables[int(word / 2.5 * RATE) :][: int(0.12 * RATE)] *= rng.uniform(0, 1)
    hiss = rng.normal(0, 1, len(time)) * np.clip(-np.sin(2 * np.pi * 2.6 * time), 0, None) ** 4
    body = 0.12 * tones * syllables + 0.05 * hiss
    body *= 0.5 / np.abs(body).max()
    sound = np.concatenate([np.zeros(RATE // 10), body, np.zeros(RATE // 10)])
    return np.asarray(sound + rng.normal(0, 0.0005, len(sound)))


def clean_items(count: int, seed: int = 5) -> list[Item]:
    """Clips with texts that differ."""
    rng, words = np.random.default_rng(seed), random.Random(seed)
    pool = [s for s in sentences() if 30 <= len(s) <= 110 and "etc." not in s]
    texts = dict.fromkeys(words.sample(pool, min(count, len(pool))))  # no text comes twice
    while len(texts) < count:
        first, second = words.choice(pool).split()[:6], words.choice(pool).split()[:7]
        texts.setdefault(f"{' '.join(first)} and {' '.join(second).lower()}.")
    return [Item(voice(text, rng, 110 + 30 * rng.random()), text) for text in texts]


def encoded(item: Item) -> bytes:
    """The clip as a WAV file."""
    if item.raw is not None:
        return item.raw
    sound = item.sound if item.sound.ndim == 2 else item.sound[:, None]
    if item.bits == 32:
        kind, body = 3, sound.astype("<f4").tobytes()
    elif item.bits == 8:
        kind, body = 1, np.round(np.clip(sound, -1, 1) * 127 + 128).astype(np.uint8).tobytes()
    else:
        kind, body = 1, np.round(np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()
    block = sound.shape[1] * item.bits // 8
    form = struct.pack("<HHIIHH", kind, sound.shape[1], item.rate, item.rate * block, block, item.bits)
    header = b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt " + struct.pack("<I", 16) + form
    whole = header + b"data" + struct.pack("<I", len(body)) + body
    return whole[: len(whole) - item.cut]


def _sound(change: Callable[[Samples], Samples]) -> Fault:
    return lambda item, _: item._replace(sound=change(item.sound))


def _text(change: Callable[[str], str]) -> Fault:
    return lambda item, _: item._replace(text=change(item.text))


def _quiet(seconds: float) -> Samples:
    return np.asarray(np.random.default_rng(1).normal(0, 0.0003, int(seconds * RATE)))


def _at(sound: Samples, value: float) -> Samples:
    out = sound.copy()
    out[len(out) // 2] = value
    return out


def _low_pass(sound: Samples) -> Samples:
    spectrum = np.fft.rfft(sound)
    spectrum[int(3400 / RATE * len(sound)) :] = 0
    return np.asarray(np.fft.irfft(spectrum, len(sound)))


def _stereo(sound: Samples, sign: float) -> Samples:
    return np.stack([sound, sign * sound], axis=1)


def _cut_when_loud(sound: Samples) -> Samples:
    """The sound up to the loudest place of its last fourth."""
    start = len(sound) * 3 // 4
    power = np.convolve(sound[start:] ** 2, np.ones(RATE // 50), "valid")
    return sound[: start + int(np.argmax(power)) + RATE // 50]


def _one_of(signs: str, text: str) -> str:
    """One of the signs, by the text: so that in many clips none comes often."""
    return signs[zlib.crc32(text.encode()) % len(signs)]


#: name -> (the check that names it, how the clip is broken; it is given an earlier clip too)
SPEECH_FAULTS: dict[str, tuple[str, Fault]] = {
    "no audio at all": ("TPD201", lambda i, _: i._replace(raw=b"not a sound file")),
    "an empty file": ("TPD201", lambda i, _: i._replace(raw=b"")),
    "a header alone": ("TPD201", lambda i, _: i._replace(sound=np.zeros(0))),
    "no data chunk": ("TPD201", lambda i, _: i._replace(raw=encoded(i)[:36])),
    "unknown codec": ("TPD201", lambda i, _: i._replace(raw=encoded(i)[:20] + b"\x11\x00" + encoded(i)[22:])),
    "truncated by a third": ("TPD202", lambda i, _: i._replace(cut=len(i.sound) * 2 // 3)),
    "truncated by a frame": ("TPD202", lambda i, _: i._replace(cut=640)),
    "8 kHz": ("TPD203", lambda i, _: i._replace(sound=i.sound[::2], rate=8000)),
    "header says 22.05 kHz": ("TPD203", lambda i, _: i._replace(rate=22_050)),
    "stereo": ("TPD204", _sound(lambda s: _stereo(s, 0.8))),
    "8 bits": ("TPD205", lambda i, _: i._replace(bits=8)),
    "float samples": ("TPD205", lambda i, _: i._replace(bits=32)),
    "clipped": ("TPD206", _sound(lambda s: np.clip(s * 6, -1, 1))),
    "clipped, then turned down": ("TPD206", _sound(lambda s: np.clip(s * 6, -1, 1) * 0.4)),
    "clipped on one side": ("TPD206", _sound(lambda s: np.minimum(s * 4, 0.7))),
    "NaN": ("TPD208", lambda i, _: i._replace(sound=_at(i.sound, np.nan), bits=32)),
    "infinite": ("TPD208", lambda i, _: i._replace(sound=_at(i.sound, np.inf), bits=32)),
    "DC offset": ("TPD209", _sound(lambda s: s + 0.1)),
    "small DC offset": ("TPD209", _sound(lambda s: s - 0.03)),
    "channels cancel out": ("TPD210", _sound(lambda s: _stereo(s, -1))),
    "all zero": ("TPD211", _sound(lambda s: s * 0)),
    "nearly silent": ("TPD211", _sound(lambda s: s * 0.001)),
    "silence in front": ("TPD212", _sound(lambda s: np.concatenate([_quiet(1.6), s]))),
    "silence behind": ("TPD212", _sound(lambda s: np.concatenate([s, _quiet(1.6)]))),
    "digital silence behind": ("TPD212", _sound(lambda s: np.concatenate([s, np.zeros(2 * RATE)]))),
    "long pause": ("TPD213", _sound(lambda s: np.concatenate([s[: len(s) // 2], _quiet(2.6), s[len(s) // 2 :]]))),
    "far too quiet": ("TPD214", _sound(lambda s: s * 0.03)),
    "noise": ("TPD215", _sound(lambda s: s * 0.2 + np.random.default_rng(2).normal(0, 0.15, len(s)))),
    "hum": ("TPD215", _sound(lambda s: s * 0.2 + 0.3 * np.sin(2 * np.pi * 50 * np.arange(len(s)) / RATE))),
    "up-sampled from a telephone": ("TPD216", _sound(_low_pass)),
    "too short": ("TPD217", _sound(lambda s: s[RATE // 2 : RATE // 2 + 3000])),
    "too long": ("TPD218", _sound(lambda s: np.tile(s, 1 + 31 * RATE // len(s)))),
    "the last syllable is cut": ("TPD219", _sound(_cut_when_loud)),
    "text of a longer clip": ("TPD221", _text(lambda text: f"{text} {text.lower()} {text.lower()}")),
    "text is cut": ("TPD221", _text(lambda text: text[: len(text) // 4])),
    "sound is cut": ("TPD221", _sound(lambda s: s[: len(s) // 3])),
    "duplicate with another text": ("TPD223", lambda i, other: i._replace(sound=other.sound)),
    "duplicate at another level": ("TPD223", lambda _, other: other._replace(sound=other.sound * 0.7)),
    "no text": ("TPD231", _text(lambda _: "")),
    "white text": ("TPD231", _text(lambda _: "   ")),
    "digits": ("TPD232", _text(lambda text: text[:-1] + " in 1984.")),
    "a date": ("TPD232", _text(lambda text: text[:-1] + " on 03.05.")),
    "an abbreviation": ("TPD233", _text(lambda text: "Dr. Who says: " + text)),
    "a sign": ("TPD233", _text(lambda text: text[:-1] + " by ten %.")),
    "double space": ("TPD234", _text(lambda text: text.replace(" ", "  ", 1))),
    "a rare character": ("TPD235", _text(lambda text: text.replace("e", _one_of("əɛɔŋʃʒθðɪʊʌæɑɒɜɹɾʔβɣχħʕɬɮʎɲɴʀʁʋɰɥʍ", text), 1))),
    "a rare quotation mark": ("TPD235", _text(lambda text: _one_of("„‟‚‛«‹「『《〈❝❛❮⟨⟪⹂〝", text) + text)),
    "same text": ("TPD236", lambda i, other: i._replace(text=other.text)),
    "mojibake": ("TPD104", _text(lambda text: text + " Caf\u00c3\u00a9.")),
    "zero-width space": ("TPD105", _text(lambda text: text.replace(" ", "\u200b ", 1))),
    "Cyrillic letter in a Latin word": ("TPD106", _text(lambda text: text[:-1] + " p\u0430ypal.")),
    "control character": ("TPD102", _text(lambda text: text + "\x07")),
    "replacement character": ("TPD103", _text(lambda text: text.replace("e", "\ufffd", 1))),
    "HTML": ("TPD107", _text(lambda text: f"<b></b><br>{text}")),
    "missing file": ("TPD241", lambda i, _: i._replace(write=False)),
    "another column": ("TPD003", lambda i, _: i._replace(columns="|more|still more")),
}  # fmt: skip


def write_pack(folder: Path, items: list[Item]) -> Path:
    """As LJSpeech: metadata.csv with id|text|text, and wavs/."""
    (folder / "wavs").mkdir(parents=True)
    lines = []
    for row, item in enumerate(items, 1):
        lines.append(f"clip{row:05}|{item.text}|{item.text}{item.columns}\n")
        if item.write:
            (folder / "wavs" / f"clip{row:05}.wav").write_bytes(encoded(item))
    (folder / "metadata.csv").write_bytes("".join(lines).encode("utf-8"))
    return folder


def with_faults(
    items: list[Item], each: int, faults: dict[str, tuple[str, Fault]], seed: int = 3
) -> tuple[list[Item], dict[str, list[int]]]:
    """(clips, name of each fault -> its rows from 1): faults are in the second half, what they copy is in the first."""
    rng = random.Random(seed)
    rows = iter(rng.sample(range(len(items) // 2, len(items)), each * len(faults)))
    earlier = iter(rng.sample(range(len(items) // 2), each * len(faults)))
    broken, where = list(items), dict[str, list[int]]()
    for name, (_, fault) in faults.items():
        for _ in range(each):
            row = next(rows)
            broken[row] = fault(items[row], items[next(earlier)])
            where.setdefault(name, []).append(row + 1)
    return broken, where


def main(folder: Path, clips: int) -> None:
    items = clean_items(clips)
    write_pack(folder / "clean", items)
    broken, where = with_faults(items, max(1, clips // 300), SPEECH_FAULTS)
    write_pack(folder / "faults", broken)
    (folder / "truth.json").write_text(json.dumps(where, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
