"""What a loss is given, brought into one shape: classes last, labels in rows; and which loss it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.errors import InputError

CLASSES, CTC, BINARY, REGRESSION = "classes", "ctc", "binary", "regression"
LOSSES = (CLASSES, CTC, BINARY, REGRESSION)
#: arrays that only batches of recognisers have
_OF_SOUND = ("target_lengths", "label_lengths", "input_lengths", "input_values", "input_features")
_LENGTHS = ("target_lengths", "label_lengths", "labels_lengths")

Array = NDArray[Any]


def loss_of(labels: Array, logits: Array | None, arrays: Mapping[str, Array]) -> str:
    """The loss that arrays of these shapes are for."""
    if logits is None:
        return CLASSES
    if logits.shape == labels.shape or logits.shape == (*labels.shape, 1):
        if bool(np.all((labels >= 0) & (labels <= 1))):
            return BINARY
        return REGRESSION if not np.issubdtype(labels.dtype, np.integer) else CLASSES
    sound = any(name in arrays for name in _OF_SOUND)
    return CTC if sound and logits.ndim == 3 and logits.shape[:2] != labels.shape else CLASSES


def arranged(
    labels: Array, logits: Array | None, loss: str, arrays: Mapping[str, Array], ignored: int
) -> tuple[Array, Array | None]:
    """(labels, logits): classes last, which PyTorch has second; labels of CTC in rows, masked after their lengths."""
    if loss == CTC:
        labels = _rows(labels, next((arrays[name] for name in _LENGTHS if name in arrays), None), ignored)
        if logits is not None and logits.ndim == 3 and logits.shape[0] != len(labels) == logits.shape[1]:
            logits = np.moveaxis(logits, 0, 1)
    elif loss == CLASSES and logits is not None and _classes_second(labels, logits):
        logits = np.moveaxis(logits, 1, -1)
    return labels, logits


def _classes_second(labels: Array, logits: Array) -> bool:
    return labels.ndim > 1 and logits.shape[:-1] != labels.shape and logits.shape[:1] + logits.shape[2:] == labels.shape


def _rows(labels: Array, lengths: Array | None, ignored: int) -> Array:
    """Labels of CTC a row, from rows that are padded, or from one after the other. Raises InputError for lengths that do not fit."""
    if lengths is None:
        return labels
    sizes = lengths.ravel().astype(np.int64)
    if labels.ndim == 2 and len(sizes) == len(labels):
        return np.where(np.arange(labels.shape[1]) < sizes[:, None], labels, ignored)
    if labels.ndim != 1 or int(sizes.sum()) != len(labels) or (sizes < 0).any():
        raise InputError(
            f"labels of the shape {labels.shape} do not go with {len(sizes)} lengths of together {int(sizes.sum()):,}"
        )
    rows = np.full((len(sizes), int(sizes.max(initial=0))), ignored, labels.dtype)
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = labels
    return rows
