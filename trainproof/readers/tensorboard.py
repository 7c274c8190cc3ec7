"""TensorBoard event files, from the wire format: scalars as `simple_value` and as tensors; everything else is passed over.

`line` is the number of the event. Several files read one after another into one builder are one run.
"""

from __future__ import annotations

import struct

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.protobuf import WireError, fields, varint
from trainproof.readers.source import LogInput
from trainproof.readers.tfrecord import HEADER, Damage, masked_crc32c, records

#: TensorProto dtype -> how its content is laid out (bfloat16 is read as the upper half of a float32)
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2", 14: "bf16"}
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
MOST_STEP = 2**62


class TensorBoardReader:
    name = "tensorboard"
    description = "TensorBoard: *.tfevents.* files, several a run"

    def __init__(self) -> None:
        self._event = 0
        self._start: float | None = None

    def sniff(self, head: bytes) -> float:
        """An event file begins with a short record whose length has the right CRC."""
        if len(head) < HEADER.size:
            return 0.0
        length, crc = HEADER.unpack_from(head)
        return 1.0 if 0 < length < 65536 and masked_crc32c(head[:8]) == crc else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        for data in records(log.open()):
            self._event += 1
            if isinstance(data, Damage):
                out.drop(self._event, data.why)
                return
            try:
                self._read_event(data, out)
            except WireError as error:
                out.drop(self._event, f"unreadable event ({error})")

    def _read_event(self, data: bytes, out: FrameBuilder) -> None:
        """Event: wall_time 1, step 2, summary 5. A step of 0 is not written."""
        wall, step, summary = 0.0, 0, None
        for number, _, value in fields(data):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                wall = _DOUBLE.unpack(value)[0]
            elif number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                summary = value
        if summary is None:
            return
        if step >= MOST_STEP:
            out.drop(self._event, f"step {step}")
            return
        values = {}
        for number, _, value in fields(summary):
            if number == 1 and isinstance(value, bytes) and (scalar := _scalar(value)):
                values[scalar[0]] = scalar[1]
        if values:
            self._start = wall if self._start is None else self._start
            out.add(step, values, self._event)


def _scalar(data: bytes) -> tuple[str, float] | None:
    """Summary.Value: tag 1, simple_value 2, tensor 8; None when it is no scalar."""
    tag, number_read = "", None
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            number_read = float(_FLOAT.unpack(value)[0])
        elif number == 8 and isinstance(value, bytes):
            number_read = _tensor(value)
    return None if number_read is None or not tag else (tag, number_read)


def _tensor(data: bytes) -> float | None:
    """TensorProto of one number: dtype 1, tensor_content 4, float_val 5, double_val 6, int_val 7, int64_val 10; None for any other."""
    dtype, content = 0, b""
    for number, _, value in fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number == 5 and isinstance(value, bytes) and len(value) == 4:
            return float(_FLOAT.unpack(value)[0])
        elif number == 6 and isinstance(value, bytes) and len(value) == 8:
            return float(_DOUBLE.unpack(value)[0])
        elif number in (7, 10):
            return float(value if isinstance(value, int) else varint(value, 0)[0])
    return _decode_content(_DTYPES.get(dtype), content)


def _decode_content(layout: str | None, content: bytes) -> float | None:
    if layout == "bf16":
        return float(_FLOAT.unpack(b"\0\0" + content)[0]) if len(content) == 2 else None
    if layout is None or len(content) != np.dtype(layout).itemsize:
        return None
    return float(np.frombuffer(content, layout)[0])
