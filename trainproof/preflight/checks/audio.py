"""Sounds of a speech pack. Limits of level, noise and silence stay WARN: they were measured on one kind of real recordings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.audio import SIGNS
from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.found import Example, Found, seen
from trainproof.preflight.spill import repeats
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds

Mask = NDArray[np.bool_]
#: clips of one envelope that later ones are compared with, so that a pack of beeps costs no square of its clips
_MOST_ORIGINALS = 50


def clips(found: Found) -> dict[str, NDArray[Any]]:
    """The table of decoded clips. Raises CannotTell when there is none."""
    table = found.table("clips")
    if not table:
        raise CannotTell("no clip could be decoded")
    return table


def told(
    found: Found, code: str, severity: Any, bad: Mask, value: NDArray[Any], says: str, metric: str, **limits: float
) -> Iterator[Sighting]:
    """A sighting of the clips in `bad`, with a value of each."""
    place = clips(found)["place"]
    clips_told = np.flatnonzero(bad)
    if len(clips_told):
        examples = (Example(int(place[i]), float(value[i]), "") for i in found.to_tell(clips_told))
        yield found.tell(code, severity, f"{found.counted(len(clips_told))} {says}", examples, metric=metric, **limits)


def _unusual(
    found: Found, code: str, column: str, declared: int | None, metric: str, severity: Any, t: DataThresholds
) -> Iterator[Sighting]:
    values = clips(found)[column]
    values = np.where(values == 0, np.nan, values)
    kinds, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(kinds):
        raise CannotTell(f"no clip tells its {metric}")
    usual = float(declared or kinds[np.argmax(counts)])
    says = f"have {metric} other than {usual:g}{' as declared' if declared else ', as most have'}"
    yield from told(found, code, severity, np.isfinite(values) & (values != usual), values, says, metric)


@check("TPD201", "unreadable-audio", FAIL, "speech", fix="Make the clip again, or leave it out.")
def unreadable_audio(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip cannot be decoded, or has no samples.

    Why it matters
    Loaders stop at it, or leave it out without a word.

    False positives
    Formats that neither this program nor libsndfile knows.
    """
    yield from found.told("TPD201", FAIL, "cannot be decoded")


@check("TPD202", "truncated-audio", FAIL, "speech", fix="Copy or make the clip again.")
def truncated_audio(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A WAV file has fewer samples than its header promises.

    Why it matters
    The end of the sentence is missing, while the text has it; most libraries read on without a word.

    False positives
    Streams that were written with a placeholder length; a length of 0 or of all ones is not counted.
    """
    yield from found.told("TPD202", FAIL, "are shorter than their header says")


@check("TPD203", "sample-rate", FAIL, "speech", fix="Resample to the rate that the trainer is configured for.")
def sample_rate(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has another sample rate than --sample-rate, or than most clips.

    Why it matters
    A trainer that does not resample hears the clip too fast or too slow.

    False positives
    Trainers that resample.
    """
    yield from _unusual(found, "TPD203", "rate", found.options.sample_rate, "Hz", FAIL, t)


@check("TPD204", "channels", FAIL, "speech", fix="Mix down to one channel.")
def channels(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has another number of channels than most clips.

    Why it matters
    Batches cannot be made of them, or a channel is dropped without a word.

    False positives
    Trainers that mix down.
    """
    yield from _unusual(found, "TPD204", "channels", None, "channels", FAIL, t)


@check("TPD205", "bit-depth", WARN, "speech", fix="Store all clips with the same number of bits.")
def bit_depth(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A WAV clip has another bit depth than most clips.

    Why it matters
    Eight bits have audible noise; a change of format often marks another source.

    False positives
    Packs of several sources.
    """
    yield from _unusual(found, "TPD205", "bits", None, "bits", WARN, t)


@check("TPD206", "clipping", WARN, "speech", fix="Record again with less gain, or leave the clips out.")
def clipping(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has flat tops: runs of three or more samples at its own peak, whatever the peak is.

    Why it matters
    The model learns the distortion; and a clip that was turned down later is clipped all the same.

    False positives
    Square waves.
    """
    runs = clips(found)["clipped"]
    yield from told(
        found, "TPD206", WARN, runs >= t.clipped_runs, runs, "are clipped", "flat tops", clipped_runs=t.clipped_runs
    )


@check("TPD207", "other-format", WARN, "speech", fix="Rename the file, or convert it.")
def other_format(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The content of a file is another format than its ending says.

    Why it matters
    Loaders that go by the ending stop at it.

    False positives
    None known.
    """
    yield from found.told("TPD207", WARN, "are in another format than their names say")


@check("TPD208", "unreal-samples", FAIL, "speech", fix="Make the clip again.")
def unreal_samples(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has samples that are NaN or infinite.

    Why it matters
    One such sample makes the loss of its batch NaN.

    False positives
    None known.
    """
    count = clips(found)["unreal"]
    yield from told(found, "TPD208", FAIL, count > 0, count, "have samples that are not finite", "samples")


@check("TPD209", "dc-offset", WARN, "speech", fix="Subtract the mean.")
def dc_offset(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The mean of a clip is far from zero.

    Why it matters
    It costs headroom and moves the lowest bands of the spectrum.

    False positives
    Clips of a few milliseconds.
    """
    offset = clips(found)["offset"]
    yield from told(
        found, "TPD209", WARN, np.abs(offset) > t.offset, offset, "have a DC offset", "mean", offset=t.offset
    )


@check("TPD210", "phase-opposed", FAIL, "speech", fix="Turn the sign of one channel, or keep one of them.")
def phase_opposed(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The two channels of a clip have opposite signs.

    Why it matters
    Mixed down, which most trainers do, they cancel out.

    False positives
    Effects of stereo.
    """
    value = clips(found)["opposed"]
    yield from told(
        found, "TPD210", FAIL, value < t.opposed, value, "cancel out when mixed down", "correlation", opposed=t.opposed
    )


@check("TPD211", "silent", FAIL, "speech", fix="Leave the clip out, or record it again.")
def silent(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip is silent: all samples are zero, or nearly.

    Why it matters
    The model learns to answer a text with silence; normalising such a clip divides by zero. Resamplers that meet NaN write such files.

    False positives
    Clips of silence on purpose.
    """
    table = clips(found)
    yield from told(
        found, "TPD211", FAIL, silent_clips(table, t), table["peak"], "are silent", "peak", silent_peak=t.silent_peak
    )


def silent_clips(table: dict[str, NDArray[Any]], t: DataThresholds) -> Mask:
    """Which clips have no sound."""
    return np.asarray((table["peak"] < t.silent_peak) & (table["unreal"] == 0), bool)


def _under(found: Found, code: str, column: str, limit: float, says: str, t: DataThresholds) -> Iterator[Sighting]:
    table = clips(found)
    value = table[column]
    usable = np.isfinite(value) & ~silent_clips(table, t)
    if np.count_nonzero(usable) < t.rate_clips:
        raise CannotTell("too few clips")
    median = float(np.median(value[usable]))
    yield from told(
        found,
        code,
        WARN,
        usable & (value < median - limit),
        value,
        f"{says} (median {median:.1f} dB)",
        "dB",
        under=limit,
    )


@check("TPD214", "level-outlier", WARN, "speech", fix="Bring the clips to one level.")
def level_outlier(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip is far quieter than the others.

    Why it matters
    Its noise comes up when it is normalised; without that the model learns two voices.

    False positives
    Whispering.
    """
    yield from _under(found, "TPD214", "level", t.level_under, "are far quieter than the others", t)


@check("TPD215", "noisy", WARN, "speech", fix="Listen to them; leave out what is noise.")
def noisy(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The quiet parts of a clip are nearly as loud as its loud parts, unlike in the other clips.

    Why it matters
    Noise, music or a hum is learned as a part of the voice.

    False positives
    Short clips without any pause.
    """
    table = clips(found)
    value = np.where(table["seconds"] < 1.0, np.nan, table["dynamic"])
    usable = np.isfinite(value) & ~silent_clips(table, t)
    if np.count_nonzero(usable) < t.rate_clips:
        raise CannotTell("too few clips")
    median = float(np.median(value[usable]))
    bad = usable & (value < median - t.dynamic_under) & (value < 12)
    yield from told(
        found,
        "TPD215",
        WARN,
        bad,
        value,
        f"have hardly any quiet part (median {median:.1f} dB)",
        "dB",
        dynamic_under=t.dynamic_under,
    )


@check("TPD216", "band-limited", WARN, "speech", fix="Find the original; or train at the lower rate.")
def band_limited(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has far less energy above 5 kHz than the others: it was up-sampled, or went through a telephone or a codec.

    Why it matters
    The model learns a dull voice for a part of the data.

    False positives
    Other voices and microphones; hence the distance of 20 dB from the median.
    """
    yield from _under(found, "TPD216", "high", t.band_under, "have far less energy above 5 kHz than the others", t)


@check("TPD217", "too-short", WARN, "speech", fix="Leave the clips out, or join them.")
def too_short(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip is very short.

    Why it matters
    Convolutions are wider than it, and trainers skip it or stop.

    False positives
    Packs of single words or sounds.
    """
    seconds = clips(found)["seconds"]
    yield from told(
        found,
        "TPD217",
        WARN,
        seconds < t.shortest,
        seconds,
        f"are shorter than {t.shortest} s",
        "seconds",
        shortest=t.shortest,
    )


@check("TPD218", "too-long", WARN, "speech", fix="Cut the clips at pauses.")
def too_long(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip is very long.

    Why it matters
    Trainers skip or cut it (Whisper reads 30 s), and it sets the memory of its batch.

    False positives
    Trainers for long recordings.
    """
    seconds = clips(found)["seconds"]
    yield from told(
        found,
        "TPD218",
        WARN,
        seconds > t.longest,
        seconds,
        f"are longer than {t.longest:g} s",
        "seconds",
        longest=t.longest,
    )


@check("TPD222", "declared-duration", FAIL, "speech", fix="Write the manifest from the files.")
def declared_duration(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The duration in the manifest is not that of the clip (by more than 0.1 s and 5 %).

    Why it matters
    Trainers filter and batch by the manifest: clips are lost, or memory runs out.

    False positives
    Manifests of parts of files, with offsets.
    """
    yield from found.told("TPD222", FAIL, "have another duration than declared", metric="seconds")


@check("TPD223", "duplicate-audio", FAIL, "speech", fix="Keep the clip once, with the text that is right.")
def duplicate_audio(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The samples of a clip are those of an earlier one; or its envelope and the signs of its samples are: a copy at another level.

    The same samples with another text are FAIL: one of the two texts is wrong.

    Why it matters
    What is repeated counts more; of two texts for one sound one is wrong.

    False positives
    Silent clips are not counted. Two voices may share the places of 64 loud frames and the rises between them; that 55 of 63 signs of
    their samples agree too, as those of a copy do, has a chance of one in 10^9.
    """
    table = clips(found)
    heard = np.flatnonzero(~silent_clips(table, t))
    found_at: dict[int, tuple[int, str]] = {}
    for i, j in zip(*repeats(table["digest"][heard]), strict=True):
        found_at[int(heard[i])] = (int(heard[j]), "the same samples as")
    for i, j in _copies(table, heard[table["shape"][heard] != 0], t.sign_changes):
        found_at.setdefault(i, (j, "the same sound as"))
    place, text = table["place"], table["text"]
    examples = [
        Example(int(place[i]), math.nan, f"{how} {found.named(int(place[j]))}") for i, (j, how) in found_at.items()
    ]
    if examples:
        other = sum(1 for i, (j, how) in found_at.items() if text[i] != text[j] and how.startswith("the same samples"))
        more = f"; {other:,} of them with another text" if other else ""
        message = f"{found.counted(len(examples))} sound as an earlier one{more}"
        yield found.tell("TPD223", FAIL if other else WARN, message, examples, sign_changes=t.sign_changes)


def _copies(table: dict[str, NDArray[Any]], mine: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """(clip, the first clip that it is a copy of): the same envelope, and few signs of samples that differ, or nearly all."""
    originals: dict[int, list[int]] = {}
    again, chiefs = repeats(table["shape"][mine])
    for i in mine[np.union1d(again, chiefs)].tolist():
        known = originals.setdefault(int(table["shape"][i]), [])
        changes = ((j, (int(table["signs"][i]) ^ int(table["signs"][j])).bit_count()) for j in known)
        original = next((j for j, differ in changes if min(differ, SIGNS - differ) <= most), None)
        if original is not None:
            yield i, original
        elif len(known) < _MOST_ORIGINALS:
            known.append(i)


@check("TPD242", "unreferenced-audio", WARN, "speech", fix="Add the clips to the manifest, or remove them.")
def unreferenced_audio(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A sound lies in the folder, and no manifest names it.

    Why it matters
    It is not trained on; often lines of the manifest were lost.

    False positives
    Clips that were sorted out on purpose, and left where they were.
    """
    count = len(found.places("TPD242"))
    for sighting in found.told("TPD242", WARN, "are named by no manifest"):
        yield sighting._replace(message=f"{count:,} sound{'s are' if count > 1 else ' is'} named by no manifest")


@check("TPD243", "speaker-imbalance", INFO, "speech", fix="Sample the voices evenly.")
def speaker_imbalance(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """One voice has many times the clips of another.

    Why it matters
    The rare voice is learned badly.

    False positives
    Packs of recognition, where many speakers say little: hence INFO.
    """
    counts: dict[str, int] = found.counters.get("speakers", Counter())
    if len(counts) < 2:
        raise CannotTell("one speaker, or none named")
    most, rare = max(counts.values()), min(sorted(counts), key=counts.__getitem__)
    if most > t.speaker_times * counts[rare]:
        message = f"the largest of {len(counts):,} voices has {most:,} clips, {rare or 'one without a name'} has {counts[rare]:,}"
        yield seen(INFO, message, (), speaker_times=t.speaker_times)
