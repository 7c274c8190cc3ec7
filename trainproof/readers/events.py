"""The shape of a TensorBoard event: where in its bytes the wall time, the step and the scalars stand.

Field numbers are those of TensorFlow's event.proto, summary.proto, tensor.proto and types.proto, and the hparams
plugin's.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np

from trainproof.facts import Facts
from trainproof.frame import Floats, Ints
from trainproof.readers.protobuf import BYTES, FIXED32, FIXED64, VARINT, Field, WireError, fields, signed, varint
from trainproof.readers.tfrecord import Bytes
from trainproof.readers.values import clean_name

#: where the hparams plugin keeps a session's configuration
HPARAMS_TAG = "_hparams_/session_start_info"

#: DataType -> how one number of it lies in tensor_content; bfloat16 is the upper half of a float32
_CONTENT = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8",
    14: "bfloat16", 17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
_HALF, _FLOAT_VAL, _DOUBLE_VAL = 13, 5, 6
_INT_VALS = (7, 10, 16, 17)
_WHERE = "the event file's hparams"


class Scalar(NamedTuple):
    """One number of an event: its tag, its position and layout; or, where it is a varint, the number itself."""

    tag: str
    at: int
    layout: str
    number: float = math.nan

    def values(self, columns: Bytes) -> Floats:
        """The numbers of n events of this shape, (n,), from their bytes, (size, n)."""
        if self.layout == "varint":
            return np.full(columns.shape[1], self.number)
        if self.layout == "bfloat16":
            upper = _numbers(columns[self.at : self.at + 2], "<u2").astype(np.uint32) << np.uint32(16)
            return upper.view(np.float32).astype(np.float64)
        return _numbers(columns[self.at : self.at + np.dtype(self.layout).itemsize], self.layout).astype(np.float64)


class Shape:
    """What events that differ only in their numbers have in common.

    care: (size,) bits that must agree for another event to have the same shape: all of keys, lengths and tags, the
    continuation bits of varints, none of the numbers and of what is passed over.
    """

    def __init__(self, size: int) -> None:
        self.care = np.zeros(size, np.uint8)
        self.wall: Field | None = None
        self.step: Field | None = None
        self.scalars: list[Scalar] = []
        self.hparams: Field | None = None

    def walls(self, columns: Bytes) -> Floats:
        """Wall times in seconds, (n,); NaN where the event has none."""
        if self.wall is None:
            return np.full(columns.shape[1], math.nan)
        return _numbers(columns[self.wall.begin : self.wall.end], "<f8").astype(np.float64)

    def steps(self, columns: Bytes) -> Ints:
        """Steps, (n,). A step of 0 is not written."""
        value = np.zeros(columns.shape[1], np.uint64)
        if self.step is not None:
            for i, column in enumerate(columns[self.step.begin : self.step.end]):
                value |= (column & 0x7F).astype(np.uint64) << np.uint64(7 * i)
        return value.view(np.int64)


def _numbers(columns: Bytes, layout: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    return np.ascontiguousarray(columns.T).view(layout).ravel()


def shape_of(event: bytes) -> Shape:
    """The shape of one event: wall_time 1, step 2, summary 5. Raises WireError."""
    shape = Shape(len(event))
    at = 0
    for field in fields(event):
        _mark(shape, at, field)
        at = field.end
        if (field.number, field.kind) == (1, FIXED64):
            shape.wall = field
        elif (field.number, field.kind) == (2, VARINT):
            shape.step = field
        elif (field.number, field.kind) == (5, BYTES):
            _read_summary(shape, event, field)
    return shape


def _mark(shape: Shape, at: int, field: Field) -> None:
    """Note which bits of a field decide the shape; `at` is where its key begins."""
    shape.care[at : field.begin] = 0xFF
    if field.kind == VARINT:
        shape.care[field.begin : field.end] = 0x80


def _read_summary(shape: Shape, event: bytes, summary: Field) -> None:
    """Summary: value 1, repeated."""
    at = summary.begin
    for field in fields(event, summary.begin, summary.end):
        _mark(shape, at, field)
        at = field.end
        if (field.number, field.kind) == (1, BYTES):
            _read_value(shape, event, field)


def _read_value(shape: Shape, event: bytes, value: Field) -> None:
    """Summary.Value: tag 1, simple_value 2, tensor 8, metadata 9."""
    tag, scalar, metadata = "", None, None
    at = value.begin
    for field in fields(event, value.begin, value.end):
        _mark(shape, at, field)
        at = field.end
        if (field.number, field.kind) == (1, BYTES):
            tag = clean_name(event[field.begin : field.end].decode("utf-8", "replace"))
            shape.care[field.begin : field.end] = 0xFF
        elif (field.number, field.kind) == (2, FIXED32):
            scalar = Scalar("", field.begin, "<f4")
        elif (field.number, field.kind) == (8, BYTES):
            scalar = _read_tensor(shape, event, field)
        elif (field.number, field.kind) == (9, BYTES):
            metadata = field
    if tag == HPARAMS_TAG:
        shape.hparams = metadata
    elif scalar is not None and tag:
        shape.scalars.append(scalar._replace(tag=tag))


def _read_tensor(shape: Shape, event: bytes, tensor: Field) -> Scalar | None:
    """TensorProto of one number: dtype 1, tensor_shape 2, tensor_content 4 or typed values; None for any other."""
    dtype, single = 0, True
    content: Field | None = None
    at = tensor.begin
    for field in fields(event, tensor.begin, tensor.end):
        _mark(shape, at, field)
        at = field.end
        if field.number in (1, 2):
            shape.care[field.begin : field.end] = 0xFF
        if (field.number, field.kind) == (1, VARINT):
            dtype = varint(event, field.begin)[0]
        elif (field.number, field.kind) == (2, BYTES):
            single = _is_single(event, field)
        elif field.number in (4, _HALF, _FLOAT_VAL, _DOUBLE_VAL, *_INT_VALS) and field.end > field.begin:
            content = field
    if content is None or not single:
        return None
    return _typed(shape, event, dtype, content)


def _typed(shape: Shape, event: bytes, dtype: int, content: Field) -> Scalar | None:
    """The one number that a field of a tensor holds."""
    size = content.end - content.begin
    if content.number == _FLOAT_VAL:
        return Scalar("", content.begin, "<f4") if size == 4 else None
    if content.number == _DOUBLE_VAL:
        return Scalar("", content.begin, "<f8") if size == 8 else None
    layout = _CONTENT.get(dtype)
    if content.number == 4:
        itemsize = 2 if layout == "bfloat16" else np.dtype(layout).itemsize if layout else 0
        return Scalar("", content.begin, layout) if layout and size == itemsize else None
    number, end = varint(event, content.begin, content.end)
    if end != content.end:
        return None
    shape.care[content.begin : content.end] = 0xFF
    if content.number != _HALF:
        return Scalar("", content.begin, "varint", float(signed(number)))
    bits = np.array([number & 0xFFFF], "<u2")
    half = bits.view("<f2")[0] if layout == "<f2" else (bits.astype("<u4") << 16).view("<f4")[0]
    return Scalar("", content.begin, "varint", float(half))


def _is_single(event: bytes, tensor_shape: Field) -> bool:
    """TensorShapeProto: dim 2, repeated, of size 1 (its own field 1; 0 is not written)."""
    for dim in fields(event, tensor_shape.begin, tensor_shape.end):
        if (dim.number, dim.kind) == (2, BYTES):
            size = next((f for f in fields(event, dim.begin, dim.end) if (f.number, f.kind) == (1, VARINT)), None)
            if size is None or varint(event, size.begin)[0] != 1:
                return False
    return True


def declare_hparams(event: bytes, metadata: Field, facts: Facts) -> None:
    """The session's configuration as facts.

    SummaryMetadata.plugin_data 1 > content 2 > session_start_info 3 > hparams 1 (key 1, value 2); a value is a double
    2, a text 3 or a truth value 4. What cannot be read is passed over.
    """
    try:
        for start_info in _below(event, metadata, (1, 2, 3)):
            for entry in _below(event, start_info, (1,)):
                parts = {field.number: field for field in fields(event, entry.begin, entry.end)}
                if 1 in parts and 2 in parts:
                    name = event[parts[1].begin : parts[1].end].decode("utf-8", "replace")
                    facts.declare(name, _hparam(event, parts[2]), _WHERE)
    except WireError:
        return


def _below(event: bytes, message: Field, path: tuple[int, ...]) -> list[Field]:
    """The messages that lie below `message` on a path of field numbers."""
    found = [message]
    for number in path:
        found = [
            field
            for parent in found
            for field in fields(event, parent.begin, parent.end)
            if (field.number, field.kind) == (number, BYTES)
        ]
    return found


def _hparam(event: bytes, value: Field) -> object:
    for field in fields(event, value.begin, value.end):
        if (field.number, field.kind) == (2, FIXED64):
            number: float = struct.unpack_from("<d", event, field.begin)[0]
            return int(number) if number.is_integer() else number
        if (field.number, field.kind) == (3, BYTES):
            return event[field.begin : field.end].decode("utf-8", "replace")
        if (field.number, field.kind) == (4, VARINT):
            return varint(event, field.begin)[0] != 0
    return None
