"""Sound files as samples, and what is measured on them. WAV is read here, by its chunks; other formats by soundfile."""

from __future__ import annotations

import io
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from trainproof.errors import InputError
from trainproof.preflight.extras import needed
from trainproof.preflight.stores import path_of, version_of

Samples = NDArray[np.float32]

#: no clip is larger: four hours of 48 kHz stereo in 24 bits
MOST_BYTES = 4 * 1024**3
FRAME_SECONDS = 0.02
#: a frame this much under the clip's loud frames (95th percentile) is silence
SILENCE_DB = 40.0
#: frames that the spectrum is averaged over, and samples of each
SPECTRUM_FRAMES, SPECTRUM_SIZE = 16, 1024
#: a copy at another level is known by the rises between so many frames, which are this much under the loud ones at most
SHAPE_POINTS, SHAPE_DB = 64, 20.0
SIGNS = SHAPE_POINTS - 1
_FLOOR = 1e-10
#: formats of WAV files that soundfile decodes: Microsoft's and IMA's ADPCM, A-law, mu-law, GSM 6.10
_CODED = (0x02, 0x11, 0x06, 0x07, 0x31)


class AudioError(Exception):
    """A clip that cannot be decoded; the check that tells it, and why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class Sound(NamedTuple):
    """A decoded clip: samples of shape (frames, channels) between -1 and 1; `lacks` are the frames that its header promised."""

    samples: Samples
    rate: int
    bits: int
    lacks: int
    real: str
    digest: int


class Measures(NamedTuple):
    """Numbers of one clip. Levels in dB of full scale, times in seconds; `tail` is the last frame's level against the loud ones."""

    seconds: float
    rate: int
    channels: int
    bits: int
    peak: float
    offset: float
    clipped: int
    unreal: int
    lead: float
    trail: float
    gap: float
    tail: float
    speech: float
    level: float
    dynamic: float
    high: float
    opposed: float
    digest: int
    shape: int
    signs: int


def read_sound(path: str, data: bytes | None = None) -> Sound:
    """A clip from a file, or from `data`. Raises AudioError, and InputError where a library is missing."""
    if data is None:
        try:
            _check_file(path)
            data = path_of(path).read_bytes()
        except (OSError, ValueError) as error:
            raise _unread(error) from None
    if not data:
        raise AudioError("TPD201", "an empty file")
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return _wave(data)
    return _other(data)


def read_part(path: str, start: float, seconds: float) -> Sound:
    """A clip of a recording, by soundfile where it does not begin with it. Raises what `read_sound` raises."""
    if start == 0:
        sound = read_sound(path)
        samples = sound.samples[: round(seconds * sound.rate)]
        return (
            sound
            if len(samples) == len(sound.samples)
            else sound._replace(samples=samples, digest=_digest(samples.tobytes()))
        )
    try:
        _check_file(path)
    except (OSError, ValueError) as error:
        raise _unread(error) from None
    soundfile = needed("soundfile", "clips that are parts of recordings")
    try:
        with path_of(path).open("rb") as raw, soundfile.SoundFile(raw) as file:
            rate, wanted = int(file.samplerate), round(seconds * file.samplerate)
            if round(start * rate) >= file.frames:
                raise AudioError("TPD201", f"begins at {start:.2f} s of a recording of {file.frames / rate:.2f} s")
            file.seek(round(start * rate))
            samples = file.read(min(wanted, file.frames), dtype="float32", always_2d=True)
    except (OSError, ValueError) as error:
        raise _unread(error) from None
    except soundfile.SoundFileError as error:
        raise _undecoded(error) from None
    if not len(samples):
        raise AudioError("TPD201", "no samples")
    return Sound(samples, rate, 0, 0, "", _digest(samples.tobytes()))


def _check_file(path: str) -> None:
    """Raises AudioError for a pipe, a device or a folder, which may have no end, and for a file that is too large."""
    size, _ = version_of(path)
    if size > MOST_BYTES:
        raise AudioError("TPD201", f"over {MOST_BYTES >> 30} GiB")
    if not path_of(path).is_file():
        raise AudioError("TPD201", "no regular file")


def _unread(error: OSError | ValueError) -> AudioError:
    missing = isinstance(error, FileNotFoundError)
    return AudioError("TPD241" if missing else "TPD201", getattr(error, "strerror", None) or str(error))


def _undecoded(error: Exception) -> AudioError:
    said = str(error).rpartition(">: ")[2]  # what stands before it names the object that was read, by its address
    return AudioError("TPD201", said.splitlines()[0][:80] if said else type(error).__name__)


def seconds_of(path: str | None) -> float | None:
    """Seconds of a WAV file by its header; None for what has none."""
    if path is None:
        return None
    try:
        _check_file(path)
        with path_of(path).open("rb") as raw:
            layout, start, size = _chunks(raw.read(4096))
    except (OSError, ValueError, AudioError):
        return None
    return size / (layout[3] * layout[2]) if layout and start and layout[2] and layout[3] else None


def _other(data: bytes) -> Sound:
    known = {b"fLaC": "flac", b"OggS": "ogg", b"ID3": "mp3", b"FORM": "aiff", b"NIST_1A": "sph", b"RIFF": "wav"}
    real = next((name for magic, name in known.items() if data.startswith(magic)), "mp3" if data[0] == 0xFF else "")
    if not real:
        raise AudioError("TPD201", f"no audio: begins with {data[:8]!r}")
    soundfile = needed("soundfile", "FLAC, OGG and MP3 files")
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except Exception as error:  # whatever the decoder raises
        raise _undecoded(error) from None
    if not len(samples):
        raise AudioError("TPD201", "no samples")
    return Sound(samples, int(rate), 0, 0, real, _digest(samples.tobytes()))


def _wave(data: bytes) -> Sound:
    layout, start, size = _chunks(data)
    if layout is None or start == 0:
        raise AudioError("TPD201", "a WAV file without its fmt or data chunk")
    kind, channels, rate, block, bits = layout
    if kind in _CODED:
        try:
            return _other(data)
        except InputError as error:  # without the library other WAV files are still read
            raise AudioError("TPD201", str(error)) from None
    if not (channels and rate and block) or block != channels * ((bits + 7) // 8) or (kind, bits) not in _DECODERS:
        raise AudioError("TPD201", f"a WAV format that is not known: {kind}, {channels} channels, {bits} bits")
    streamed = size in (0, 0xFFFFFFFF)  # its length was not known when it was written
    there = len(data) - start if streamed else min(size, len(data) - start)
    lacks = 0 if streamed else (size - there) // block
    body = memoryview(data)[start : start + there // block * block]
    if not len(body):
        raise AudioError("TPD201", "no samples")
    samples = _DECODERS[kind, bits](body).reshape(-1, channels)
    return Sound(samples, rate, bits, lacks, "wav", _digest(body))


def _chunks(data: bytes) -> tuple[tuple[int, int, int, int, int] | None, int, int]:
    """(format, where the samples begin, how many bytes the header promises)."""
    at, layout = 12, None
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"fmt " and at + 24 <= len(data):
            kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", data, at + 8)
            if kind == 0xFFFE and at + 34 <= len(data):
                kind = struct.unpack_from("<H", data, at + 32)[0]
            layout = (kind, channels, rate, block, bits)
        elif name == b"data":
            return layout, at + 8, size
        at += 8 + size + size % 2
    return layout, 0, 0


def _pcm24(body: memoryview) -> Samples:
    raw = np.frombuffer(body, np.uint8).reshape(-1, 3)
    wide = np.zeros((len(raw), 4), np.uint8)
    wide[:, 1:] = raw
    return (wide.view("<i4").ravel() / 2147483648.0).astype(np.float32)


_DECODERS: dict[tuple[int, int], Any] = {
    (1, 8): lambda body: (np.frombuffer(body, np.uint8).astype(np.float32) - 128) / 128,
    (1, 16): lambda body: np.multiply(np.frombuffer(body, "<i2"), np.float32(1 / 32768), dtype=np.float32),
    (1, 24): _pcm24,
    (1, 32): lambda body: (np.frombuffer(body, "<i4") / 2147483648.0).astype(np.float32),
    (3, 32): lambda body: np.frombuffer(body, "<f4").astype(np.float32),
    (3, 64): lambda body: np.frombuffer(body, "<f8").astype(np.float32),
}


def _digest(body: bytes | memoryview) -> int:
    """A number of 63 bits of the samples' bytes."""
    return int(xxh3_64_intdigest(body) >> 1)


def measured(sound: Sound) -> Measures:
    """What the checks look at."""
    both = sound.samples
    x = both[:, 0] if both.shape[1] == 1 else both.mean(axis=1)
    offset, unreal = float(x.mean()), 0
    if not np.isfinite(offset):
        unreal = int(np.count_nonzero(~np.isfinite(both)))
        x = np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
        offset = float(x.mean())
    top, bottom = float(x.max()), float(x.min())
    width = max(1, int(sound.rate * FRAME_SECONDS))
    frames = x[: len(x) // width * width].reshape(-1, width) if len(x) >= width else x[None, :]
    levels = 10 * np.log10(np.einsum("ij,ij->i", frames, frames) / frames.shape[1] + _FLOOR)
    ordered = np.sort(levels)
    quiet, loud = _quantile(ordered, 0.1), _quantile(ordered, 0.95)
    lead, trail, gap, speech = _silences(levels, loud)
    shape, signs = _outline(levels, loud, frames)
    return Measures(
        seconds=len(x) / sound.rate,
        rate=sound.rate,
        channels=both.shape[1],
        bits=sound.bits,
        peak=max(top, -bottom),
        offset=offset,
        clipped=_flat_tops(x, top, bottom),
        unreal=unreal,
        lead=lead,
        trail=trail,
        gap=gap,
        tail=float(levels[-1]) - loud,
        speech=speech,
        level=loud,
        dynamic=loud - quiet,
        high=_high_band(x, sound.rate),
        opposed=_opposed(both),
        digest=sound.digest,
        shape=shape,
        signs=signs,
    )


def _quantile(ordered: NDArray[Any], share: float) -> float:
    """Between the two nearest values, as np.quantile does, which takes ten times as long for a few hundred."""
    at, part = divmod(share * (len(ordered) - 1), 1)
    low, high = float(ordered[int(at)]), float(ordered[min(int(at) + 1, len(ordered) - 1)])
    return low + (high - low) * part


def _silences(levels: NDArray[Any], loud: float) -> tuple[float, float, float, float]:
    """(leading, trailing, longest inner silence, seconds between first and last speech). loud: the level of the loud frames."""
    active = np.flatnonzero(levels > max(loud - SILENCE_DB, -90.0))
    if not len(active):
        return len(levels) * FRAME_SECONDS, 0.0, 0.0, 0.0
    gap = int(np.diff(active).max()) - 1 if len(active) > 1 else 0
    lead, trail = int(active[0]), len(levels) - 1 - int(active[-1])
    return (
        lead * FRAME_SECONDS,
        trail * FRAME_SECONDS,
        gap * FRAME_SECONDS,
        (int(active[-1]) - lead + 1) * FRAME_SECONDS,
    )


def _flat_tops(x: Samples, top: float, bottom: float) -> int:
    """Runs of at least three samples in a row at the clip's own positive or negative peak."""
    if max(top, -bottom) < 0.05:
        return 0
    runs = 0
    for end in (top, bottom):
        at = np.flatnonzero(x == np.float32(end))
        if len(at) >= 3:
            lengths = np.diff(np.flatnonzero(np.r_[True, np.diff(at) != 1, True]))
            runs += int(np.count_nonzero(lengths >= 3))
    return runs


@lru_cache(maxsize=1)
def _window() -> Samples:
    return np.hanning(SPECTRUM_SIZE).astype(np.float32)


def _high_band(x: Samples, rate: int) -> float:
    """Energy above 5 kHz over all energy, in dB, in frames spread over the clip; NaN where there is no such band."""
    if rate < 14_000 or len(x) < SPECTRUM_SIZE:
        return float("nan")
    starts = [i * (len(x) - SPECTRUM_SIZE) // (SPECTRUM_FRAMES - 1) for i in range(SPECTRUM_FRAMES)]
    frames = np.stack([x[start : start + SPECTRUM_SIZE] for start in starts])
    frames *= _window()
    spectrum = np.fft.rfft(frames, axis=1)
    power = np.einsum("ij,ij->j", spectrum.real, spectrum.real) + np.einsum("ij,ij->j", spectrum.imag, spectrum.imag)
    edge = int(5000 * SPECTRUM_SIZE / rate)
    return float(10 * np.log10((power[edge:].sum() + _FLOOR) / (power.sum() + _FLOOR)))


def _opposed(both: Samples) -> float:
    """Correlation of the two channels; 0 for one channel."""
    if both.shape[1] != 2:
        return 0.0
    left, right = both[:, 0].astype(np.float64), both[:, 1].astype(np.float64)
    size = float(np.sqrt(np.dot(left, left) * np.dot(right, right)))
    return float(np.dot(left, right) / size) if size > 0 else 0.0


def _outline(levels: NDArray[Any], top: float, frames: Samples) -> tuple[int, int]:
    """(a number of 63 bits of where the loud frames rise, the signs of the samples in their middle), which no level changes.

    Both are 0 for clips that are too short for it.
    """
    loud = np.flatnonzero(levels > top - SHAPE_DB)
    if len(loud) < SHAPE_POINTS:
        return 0, 0
    at = loud[np.linspace(0, len(loud) - 1, SHAPE_POINTS).astype(np.int64)]
    rises = np.diff(np.round(levels[at], 1)) > 0
    signs = np.packbits(frames[at[:SIGNS], frames.shape[1] // 2] > 0)
    return _digest(np.packbits(rises).tobytes() + at.tobytes()), int.from_bytes(signs.tobytes(), "big") >> 1
