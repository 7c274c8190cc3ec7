"""One pass over a checkpoint's bytes: values that are not finite, tensors that are all zero, bytes that are not what the archive says.

Memory does not depend on the size of the checkpoint: a few buffers of CHUNK bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.checkpoint.contents import ITEM_BYTES, Checked, Checkpoint, Tensor
from trainproof.errors import InputError

#: bytes read at a time: fits the second-level cache of the processors of today, with its copy
CHUNK = 1 << 19
#: bytes of a record whose checksum costs nothing
SMALL = 1 << 16
Bytes = NDArray[np.uint8]


class Floating(NamedTuple):
    """How a floating dtype spells what is not finite: unsigned integer of its width, bits without the sign, infinity (None: it has
    none), and the first pattern that is NaN."""

    view: str
    mask: int
    infinity: int | None
    nan: int


#: IEEE 754 and bfloat16; the 8-bit formats as in the OCP specification "8-bit Floating Point", revision 1.0, table 2
FLOATING = {
    "float64": Floating("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000, 0x7FF0_0000_0000_0001),
    "float32": Floating("<u4", 0x7FFF_FFFF, 0x7F80_0000, 0x7F80_0001),
    "float16": Floating("<u2", 0x7FFF, 0x7C00, 0x7C01),
    "bfloat16": Floating("<u2", 0x7FFF, 0x7F80, 0x7F81),
    "float8_e5m2": Floating("u1", 0x7F, 0x7C, 0x7D),
    "float8_e4m3fn": Floating("u1", 0x7F, None, 0x7F),
}
FLOATING |= {"complex64": FLOATING["float32"], "complex128": FLOATING["float64"]}


class Scan(NamedTuple):
    """What the bytes of a tensor hold: counts of NaN and of infinities, and whether all elements are zero."""

    nan: int
    infinite: int
    zero: bool


def scan(checkpoint: Checkpoint, verify: bool = False) -> tuple[list[Scan], list[Checked]]:
    """The scan of each tensor, in their order, and the records whose CRC-32 is not the archive's.

    verify: compute the CRC-32 of every record; it takes four times as long as all the rest. Else only of the small ones, the pickle
    among them. Raises InputError when a file cannot be read to its end.
    """
    known: dict[tuple[str, int, int, str], Scan] = {}
    records = {
        (record.path, record.offset, record.size): record
        for record in checkpoint.checked
        if record.crc and (verify or record.size <= SMALL)  # torch.serialization.set_crc32_options(False) writes none
    }
    corrupt: list[Checked] = []
    with _Reader() as reader:
        for tensor in checkpoint.tensors:
            key = _region(tensor)
            if key not in known:
                record = records.pop(key[:3], None)
                known[key] = _scanned(reader, tensor, record, corrupt)
        for record in records.values():
            _checksum(reader, record, corrupt)
    return [known[_region(tensor)] for tensor in checkpoint.tensors], corrupt


def _region(tensor: Tensor) -> tuple[str, int, int, str]:
    return tensor.path, tensor.offset, tensor.nbytes if tensor.dense else -tensor.nbytes, tensor.dtype


class _Reader:
    """Reads files in chunks, and has one thread for checksums: zlib lets go of the interpreter's lock."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}
        self._worker = ThreadPoolExecutor(1)
        self._buffers = (np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.uint8))
        self._last: Future[int] | None = None

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        for file in self._files.values():
            file.close()

    def chunks(self, path: str, offset: int, size: int, checksum: bool = False) -> Iterator[Bytes]:
        """The bytes, a buffer at a time, each good until the next is asked for. Afterwards `crc` is their CRC-32, if asked for."""
        file = self._open(path)
        self._last = None
        for number, at in enumerate(range(0, size, CHUNK)):
            chunk = self._buffers[number % 2][: min(CHUNK, size - at)]
            read_exactly(file, path, offset + at, chunk)
            if checksum:
                before = self.crc
                self._last = self._worker.submit(zlib.crc32, chunk.data, before)
            yield chunk

    @property
    def crc(self) -> int:
        """The CRC-32 of the chunks read so far."""
        return self._last.result() if self._last else 0

    def _open(self, path: str) -> BinaryIO:
        if path not in self._files:
            for file in self._files.values():
                file.close()
            try:
                self._files = {path: Path(path).open("rb", buffering=0)}  # noqa: SIM115  closed by __exit__
            except OSError as error:
                raise InputError(f"{path}: {error.strerror}") from None
        return self._files[path]


def read_exactly(file: BinaryIO, path: str, offset: int, into: Bytes) -> None:
    """Fill `into` from the file. Raises InputError when it ends before."""
    file.seek(offset)
    view, got = into.data, 0
    while got < len(view):
        count = file.readinto(view[got:])  # type: ignore[attr-defined]  # an unbuffered binary file has it
        if not count:
            raise InputError(f"{path}: ends at byte {offset + got:,}; the checkpoint is cut")
        got += count


def _scanned(reader: _Reader, tensor: Tensor, record: Checked | None, corrupt: list[Checked]) -> Scan:
    if not tensor.dense:
        return _scan_chunk(_strided(tensor), tensor.dtype)
    total = Scan(0, 0, True)
    for chunk in reader.chunks(tensor.path, tensor.offset, tensor.nbytes, record is not None):
        found = _scan_chunk(chunk, tensor.dtype)
        total = Scan(total.nan + found.nan, total.infinite + found.infinite, total.zero and found.zero)
    if record is not None and reader.crc != record.crc:
        corrupt.append(record)
    return total


def _scan_chunk(chunk: Bytes, dtype: str) -> Scan:
    kind = FLOATING.get(dtype)
    if kind is None:
        return Scan(0, 0, not chunk.any())
    bits = chunk.view(kind.view)
    bits = np.bitwise_and(bits, bits.dtype.type(kind.mask))
    top = int(bits.max(initial=0))
    if top < (kind.nan if kind.infinity is None else kind.infinity):
        return Scan(0, 0, top == 0)
    infinite = 0 if kind.infinity is None else int((bits == kind.infinity).sum())
    return Scan(int((bits >= kind.nan).sum()), infinite, False)


def _strided(tensor: Tensor) -> Bytes:
    """The bytes of a tensor that skips or repeats elements of its storage."""
    width = ITEM_BYTES[tensor.dtype]
    strides = tensor.strides or ()
    # an element that is repeated counts once: a size of 1 in its place bounds the memory by that of the storage
    shape = tuple(1 if stride == 0 else size for size, stride in zip(tensor.shape, strides, strict=True))
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
    if not reach:
        return np.empty(0, np.uint8)
    storage: Any = np.memmap(tensor.path, f"V{width}", "r", tensor.offset, (reach,))
    picked = np.lib.stride_tricks.as_strided(
        storage, shape, tuple(stride * width for stride in strides), writeable=False
    )
    return np.ascontiguousarray(picked).reshape(-1).view(np.uint8)


def _checksum(reader: _Reader, record: Checked, corrupt: list[Checked]) -> None:
    for _ in reader.chunks(record.path, record.offset, record.size, checksum=True):
        pass
    if reader.crc != record.crc:
        corrupt.append(record)


def same_bytes(ours: Sequence[Tensor], others: Sequence[Tensor]) -> list[bool]:
    """For each pair of tensors of one dtype and shape whether all bytes are the same; reading stops at the first that differ."""
    same = []
    with _Reader() as mine, _Reader() as theirs:
        for one, other in zip(ours, others, strict=True):
            if not (one.dense and other.dense):
                same.append(bool(np.array_equal(_strided_or_whole(one), _strided_or_whole(other))))
                continue
            pairs = zip(
                mine.chunks(one.path, one.offset, one.nbytes),
                theirs.chunks(other.path, other.offset, other.nbytes),
                strict=True,
            )
            same.append(all(np.array_equal(a, b) for a, b in pairs))
    return same


def _strided_or_whole(tensor: Tensor) -> Bytes:
    from trainproof.checkpoint.torchfile import row_strides

    return _strided(tensor if tensor.strides is not None else tensor._replace(strides=row_strides(tensor.shape)))


def value_of(tensor: Tensor) -> float:
    """The value of a tensor of one element. Raises InputError when the file ends before it."""
    numpy_name = {"bfloat16": None}.get(tensor.dtype, tensor.dtype)
    if tensor.elements != 1 or numpy_name is None or tensor.dtype.startswith("float8"):
        return float("nan")
    data = np.empty(tensor.nbytes, np.uint8)
    with Path(tensor.path).open("rb") as file:
        read_exactly(file, tensor.path, tensor.offset, data)
    return float(data.view(numpy_name)[0].real)
