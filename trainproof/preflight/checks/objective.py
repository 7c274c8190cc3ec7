"""The loss of one batch by its shapes, labels and logits: what no curve shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.batch import Batch
from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.found import seen
from trainproof.preflight.losses import BINARY, CLASSES, CTC, REGRESSION
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import BatchThresholds
from trainproof.verdict import Evidence, Severity, number


def at(where: tuple[NDArray[np.int64], ...], values: NDArray[Any], metric: str, most: int = 5) -> list[Evidence]:
    """The first places of an array, as (row from 1, its value)."""
    return [
        Evidence(
            metric,
            int(index[0]) + 1,
            number(float(values[index])),
            int(index[0]) + 1,
            "row",
            f"at {list(map(int, index))}",
        )
        for index in list(zip(*where, strict=True))[:most]
    ]


def _labels(batch: Batch) -> NDArray[np.int64]:
    if not np.issubdtype(batch.labels.dtype, np.integer):
        raise CannotTell("the labels are no integers")
    return batch.labels.astype(np.int64)


@check("TPO101", "shapes-differ", FAIL, fix="Give logits of the labels' shape and one more dimension, the classes.")
def shapes_differ(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The logits do not have the labels' shape and the classes, or the inputs do not have the labels' shape.

    Why it matters
    Broadcasting makes a loss of shapes that were never meant to meet.

    False positives
    Losses that bring shapes together themselves; --loss ctc says that it is CTC. Where logits go with the labels, inputs of another
    length are those of an encoder.
    """
    labels, logits, inputs = batch.labels.shape, batch.logits, batch.input_ids
    if logits is not None and not _fits(batch, logits):
        form = {CTC: "the rows, frames and classes", CLASSES: "the labels' shape and classes"}.get(
            batch.loss, "the labels' shape"
        )
        more = "; is it CTC? --loss ctc" if batch.loss == CLASSES and logits.ndim == 3 and len(labels) == 2 else ""
        yield seen(FAIL, f"logits have the shape {logits.shape}, labels {labels}: expected {form}{more}", ())
    if inputs is not None and logits is None and len(labels) == 2 and inputs.shape != labels:
        yield seen(FAIL, f"input_ids have the shape {inputs.shape}, labels {labels}: expected the labels' shape", ())


def _fits(batch: Batch, logits: NDArray[Any]) -> bool:
    if batch.loss == CTC:
        return logits.ndim == 3 and batch.labels.ndim == 2 and len(logits) == len(batch.labels)
    if batch.loss == CLASSES:
        return logits.shape[:-1] == batch.labels.shape
    return logits.shape in (batch.labels.shape, (*batch.labels.shape, 1))


@check("TPO102", "labels-no-integers", FAIL, fix="Give class numbers as integers.")
def labels_no_integers(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The labels are fractions, not class numbers.

    Why it matters
    Cross-entropy takes fractions for probabilities, and a cast cuts them.

    False positives
    Soft labels. Regression, and labels of a binary loss, are known by their shapes, or by --loss.
    """
    if batch.loss in (BINARY, REGRESSION):
        raise CannotTell(f"a loss that takes fractions: {batch.loss}")
    whole = np.issubdtype(batch.labels.dtype, np.integer) or bool(np.all(batch.labels == np.floor(batch.labels)))
    if not whole:
        yield seen(
            FAIL,
            f"labels of {batch.labels.dtype} with fractions",
            at(np.nonzero(batch.labels % 1), batch.labels, "label"),
        )


@check(
    "TPO103",
    "target-out-of-range",
    FAIL,
    fix="Resize the head, or map the labels; mask with the index that the loss ignores.",
)
def target_out_of_range(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """A label that counts is under 0, or not under the number of classes.

    Why it matters
    On a GPU it is an assertion far from its cause; on others it reads memory that is not the head's.

    False positives
    An ignored index other than --ignore-index.
    """
    labels = _labels(batch)
    if batch.classes is None:
        raise CannotTell("no logits")
    bad = batch.kept & ((labels < 0) | (labels >= batch.classes))
    if bad.any():
        message = f"{int(bad.sum()):,} labels are outside 0 to {batch.classes - 1:,} and are not {batch.settings.ignore_index}"
        if len(others := np.unique(labels[bad])) == 1 and others[0] != batch.classes:
            message += f"; if the loss ignores {others[0]}: --ignore-index {others[0]}"
        yield seen(FAIL, message, at(np.nonzero(bad), labels, "label"))


@check("TPO104", "ignored-class", FAIL, fix="Ignore an index that is no class, such as -100.")
def ignored_class(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The ignored index is one of the classes.

    Why it matters
    That class is never learned: as a target it does not count.

    False positives
    A class that is meant to be ignored, such as padding: without labels of it this is silent, and where it is the padding it is INFO.
    """
    labels, ignored = _labels(batch), batch.settings.ignore_index
    if batch.classes is None:
        raise CannotTell("no logits")
    if 0 <= ignored < batch.classes and (labels == ignored).any():
        severity = INFO if ignored == batch.settings.pad and batch.settings.pad != batch.settings.eos else FAIL
        places = np.nonzero(labels == ignored)
        yield seen(
            severity,
            f"the ignored index {ignored} is one of the {batch.classes:,} classes",
            at(places, labels, "label"),
        )


@check("TPO105", "rows-without-labels", FAIL, fix="Cut from the side where the prompt is, or leave such rows out.")
def rows_without_labels(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """All labels of a row are masked.

    Why it matters
    The row teaches nothing; where it is alone in a batch the loss is 0, or NaN. Templates that do not match, and cuts that take the
    answer, mask whole rows.

    False positives
    Rows of padding at the end of a dataset.
    """
    if batch.loss == REGRESSION:
        raise CannotTell("values, no classes")
    kept = np.array([row.any() for row in batch.kept.reshape(len(batch.labels), -1)], bool)
    empty = np.flatnonzero(~kept)
    if len(empty):
        share = len(empty) / len(kept)
        severity = FAIL if share >= t.masked_fail else WARN
        points = [Evidence("labels", int(i) + 1, 0.0, int(i) + 1, "row") for i in empty[:5]]
        yield seen(
            severity,
            f"{len(empty):,} of {len(kept):,} rows have no label that counts",
            points,
            masked_fail=t.masked_fail,
        )


@check("TPO106", "label-shift", FAIL, fix="Shift in one place: in the model, or in the data.")
def label_shift(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """Labels and inputs do not go together as the next token does.

    With --shift model the labels have to be the inputs; with --shift data they have to be the inputs one place on. Without --shift a
    distance other than these is told.

    Why it matters
    Shifted twice, the model learns to skip a token; not shifted, it learns to copy, and the loss falls to nothing at once.

    False positives
    Objectives that predict something else than the next token.
    """
    labels, inputs = _labels(batch), batch.input_ids
    if inputs is None or inputs.shape != labels.shape or labels.ndim != 2:
        raise CannotTell("no input_ids of the labels' shape")
    shares = {distance: _agreement(labels, inputs, batch.kept, distance) for distance in range(-2, 4)}
    best = max(shares, key=lambda distance: shares[distance])
    if shares[best] < t.shift_share:
        raise CannotTell("the labels are not the inputs at any distance")
    wanted = {"model": (0,), "data": (1,), None: (0, 1)}[batch.settings.shift]
    if best not in wanted:
        expected = " or ".join(map(str, wanted))
        message = f"labels are the inputs {best} places on ({shares[best]:.0%} of them), expected {expected}"
        yield seen(FAIL, message, (), shift_share=t.shift_share)


def _agreement(labels: NDArray[Any], inputs: NDArray[Any], kept: NDArray[np.bool_], distance: int) -> float:
    """Share of the labels that count which are the input `distance` places on."""
    length = labels.shape[1]
    first, last = max(0, -distance), min(length, length - distance)
    if last <= first:
        return 0.0
    mine = kept[:, first:last]
    same = labels[:, first:last] == inputs[:, first + distance : last + distance]
    return float(same[mine].mean()) if mine.any() else 0.0


@check(
    "TPO107",
    "eos-never-a-target",
    FAIL,
    fix="Append the end token before the labels are made; do not mask padding by its number if it is the same.",
)
def eos_never_a_target(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The end token is never a label that counts.

    Why it matters
    A model that never sees an end never ends. Where padding is the end token, masking the padding masks every end.

    False positives
    Texts that are cut in the middle, and packed ones that are longer than the batch.
    """
    labels, eos = _labels(batch), batch.settings.eos
    if eos is None:
        raise CannotTell("give --eos")
    if not (batch.kept & (labels == eos)).any():
        masked = batch.input_ids is not None and bool((batch.input_ids == eos).any())
        more = "; the inputs have it, so it is masked" if masked else ""
        yield seen(FAIL, f"the end token {eos} is no label of this batch{more}", ())


@check("TPO108", "nothing-masked", INFO, fix="Mask the prompt and the padding, if they are not to be learned.")
def nothing_masked(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """No label is masked.

    Why it matters
    Prompts and padding are learned as answers are.

    False positives
    Pre-training and packed batches: hence INFO.
    """
    if batch.loss != CLASSES:
        raise CannotTell(f"labels of this loss are not masked: {batch.loss}")
    if batch.labels.ndim == 2 and batch.kept.all():
        yield seen(INFO, f"all {batch.labels.size:,} labels count, none is {batch.settings.ignore_index}", ())


@check("TPO109", "padding-is-a-target", WARN, fix="Mask the padding.")
def padding_is_a_target(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The padding token is a label that counts.

    Why it matters
    The model learns to write padding, and the loss is that of the padding.

    False positives
    A padding token that is the end token, once a row.
    """
    labels, pad = _labels(batch), batch.settings.pad
    if pad is None:
        raise CannotTell("give --pad")
    bad = batch.kept & (labels == pad)
    allowed = len(labels) if pad == batch.settings.eos else 0
    if int(bad.sum()) > allowed:
        yield seen(
            WARN, f"the padding token {pad} is a label {int(bad.sum()):,} times", at(np.nonzero(bad), labels, "label")
        )


@check(
    "TPO110",
    "classes-without-targets",
    WARN,
    fix="Look whether the labels were mapped rightly, or the head is too large.",
)
def classes_without_targets(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """Some classes never occur as a target, or only one does.

    Told for up to 1,000 classes, and where the batch has many times as many labels.

    Why it matters
    A head for classes that do not occur learns only that they do not; one class alone is nothing to learn.

    False positives
    Rare classes: WARN only when one class is all there is, otherwise INFO.
    """
    labels = _labels(batch)
    if batch.classes is None or batch.classes > t.classes_most:
        raise CannotTell("no logits, or too many classes")
    targets = labels[batch.kept]
    if len(targets) < t.classes_labels * batch.classes:
        raise CannotTell("too few labels in the batch")
    there = np.unique(targets)
    if len(there) < batch.classes:
        severity: Severity = WARN if len(there) == 1 else INFO
        message = f"{batch.classes - len(there)} of {batch.classes} classes are no target of this batch of {len(targets):,} labels"
        yield seen(severity, message, (), classes_labels=t.classes_labels)


@check("TPO111", "nonfinite-logits", FAIL, fix="Look for the layer in which they begin.")
def nonfinite_logits(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """A logit is NaN or plus infinity, or all logits of a place are minus infinity.

    Why it matters
    The loss of the batch is NaN from the first step on.

    False positives
    None known: single minus infinities, which mask classes, are no fault unless they mask the target.
    """
    if batch.logits is None:
        raise CannotTell("no logits")
    if batch.loss in (BINARY, REGRESSION):
        logits = batch.logits.astype(np.float32)[..., None]
    else:
        logits = batch.logits.astype(np.float32)
    bad = np.asarray(
        np.isnan(logits).any(axis=-1) | np.isposinf(logits).any(axis=-1) | np.isneginf(logits).all(axis=-1)
    )
    if bad.any():
        yield seen(
            FAIL, f"{int(bad.sum()):,} places have logits that are not finite", at(np.nonzero(bad), bad, "place")
        )


@check("TPO112", "loss-above-chance", WARN, fix="Look at the initialisation, the labels and their shift.")
def loss_above_chance(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """The cross-entropy of the batch is far above that of a guess, ln(classes).

    Why it matters
    A model at its start should know nothing, not be sure of the wrong.

    False positives
    Heads with large initial weights, which learn it within some steps.
    """
    labels = _labels(batch)
    if (
        batch.logits is None
        or batch.logits.shape[:-1] != labels.shape
        or batch.classes is None
        or batch.loss != CLASSES
    ):
        raise CannotTell("no logits of the labels' shape")
    counts = batch.kept & (labels >= 0) & (labels < batch.classes)
    logits = batch.logits[counts].astype(np.float64)
    if not len(logits) or not np.isfinite(logits).all():
        raise CannotTell("no labels that count, or logits that are not finite")
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    loss = math.fsum(total - logits[np.arange(len(logits)), labels[counts]]) / len(logits)
    guess = math.log(batch.classes)
    if loss > t.chance_times * guess + t.chance_more:
        message = f"the cross-entropy is {loss:.4g}, a guess among {batch.classes:,} classes has {guess:.4g}"
        yield seen(WARN, message, (), chance_times=t.chance_times, chance_more=t.chance_more)


@check("TPO113", "cannot-align", FAIL, fix="Leave the clips out, or give the encoder more frames a second.")
def cannot_align(batch: Batch, t: BatchThresholds) -> Iterator[Sighting]:
    """A row of CTC has fewer frames than labels, and one more between two equal ones.

    Why it matters
    No path through the frames spells the labels: the loss of the row is infinite, or zeroed so that it teaches nothing.

    False positives
    None known: frames and labels decide. All frames of the logits count, also those of padding.
    """
    labels = _labels(batch)
    if batch.loss != CTC or batch.logits is None or not _fits(batch, batch.logits):
        raise CannotTell("no CTC loss")
    frames = batch.logits.shape[1]
    needs = [
        len(row) + int(np.count_nonzero(row[1:] == row[:-1]))
        for row in (labels[i][batch.kept[i]] for i in range(len(labels)))
    ]
    short = np.flatnonzero(np.array(needs) > frames)
    if len(short):
        points = [Evidence("frames needed", int(i) + 1, float(needs[i]), int(i) + 1, "row") for i in short[:5]]
        yield seen(
            FAIL, f"{len(short):,} of {len(labels):,} rows need more than the {frames:,} frames that there are", points
        )
