"""Where the speech of a clip begins, pauses and ends. Limits stay WARN: they were measured on one kind of real recordings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.audio import clips, silent_clips, told
from trainproof.preflight.checks.registry import WARN, check
from trainproof.preflight.found import Found
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds


@check("TPD212", "edge-silence", WARN, "speech", fix="Cut the silence, and leave a tenth of a second.")
def edge_silence(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip begins or ends with a long silence, measured against its own level.

    Why it matters
    Alignment of text and sound fails on long silences; speech models learn to pause before they end.

    False positives
    Clips that are cut at fixed lengths.
    """
    table = clips(found)
    edge = np.maximum(table["lead"], table["trail"])
    yield from told(
        found,
        "TPD212",
        WARN,
        (edge > t.edge_seconds) & ~silent_clips(table, t),
        edge,
        "begin or end with a long silence",
        "seconds",
        edge_seconds=t.edge_seconds,
    )


@check("TPD213", "long-pause", WARN, "speech", fix="Cut the clip at the pause.")
def long_pause(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has a long silence in its middle.

    Why it matters
    As silence at the edges; often something was cut out there.

    False positives
    Readings with dramatic pauses.
    """
    table = clips(found)
    yield from told(
        found,
        "TPD213",
        WARN,
        table["gap"] > t.pause_seconds,
        table["gap"],
        "have a long pause",
        "seconds",
        pause_seconds=t.pause_seconds,
    )


@check("TPD219", "ends-abruptly", WARN, "speech", fix="Cut the clips again, a tenth of a second later.")
def ends_abruptly(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip ends at full level, while nearly all others end in quiet: the last syllable may be cut off.

    Why it matters
    The text has the whole word, the sound has not: the model learns to swallow its ends.

    False positives
    Words that end in a loud vowel, cut tightly; packs that are cut so throughout are not judged.
    """
    table = clips(found)
    usable = ~silent_clips(table, t)
    loud = usable & (table["tail"] > -t.tail_under)
    if np.count_nonzero(usable) < t.rate_clips or np.count_nonzero(loud) > t.tail_share * np.count_nonzero(usable):
        raise CannotTell("too few clips, or most end so")
    yield from told(found, "TPD219", WARN, loud, table["tail"], "end at full level", "dB", tail_under=t.tail_under)
