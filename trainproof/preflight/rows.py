"""Files of records, whatever they lie in: their format by content, the pieces that are worked on apart, and their rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainproof.errors import InputError
from trainproof.preflight.extras import needed
from trainproof.readers.source import MOST_LINE_BYTES, LogInput, count_lines

#: bytes of lines that one worker reads at once
PIECE_BYTES = 8 * 1024 * 1024
#: a cell of a table may not be longer
MOST_CELL_CHARACTERS = 16 * 1024 * 1024
#: files in a folder that hold records; others are passed over
RECORD_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
PACKED_ENDINGS = (".gz", ".zst", ".xz")

_PARQUET, _ARROW = b"PAR1", b"\xff\xff\xff\xff"
_PACKED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


class Piece(NamedTuple):
    """A part of a file: bytes `start` to `stop` of its lines, the first of which is `first` (from 1); stop 0: the whole file."""

    file: int
    start: int = 0
    stop: int = 0
    first: int = 1


class Bad(NamedTuple):
    """A row that could not be decoded: the check that tells it, and why."""

    code: str
    why: str


#: (row number from 1, the record or what is wrong with it, whether bytes of it had to be replaced)
Row = tuple[int, Any, bool]


def format_of(path: str) -> str:
    """jsonl, json, parquet, arrow, csv, tsv or lines, by content. Raises InputError when the file cannot be read or is empty."""
    with closing(LogInput(path)) as log:
        head = log.head
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith(_ARROW):
        return "arrow"
    text = head.lstrip()
    first = text.split(b"\n", 1)[0].strip()
    if text[:1] == b"{":
        return "json" if first == b"{" or not _is_record(first) else "jsonl"
    if text[:1] == b"[":
        return "json"
    if b"\n{" in text[: len(first) + 3] or any(name in (".jsonl", ".ndjson") for name in Path(path).suffixes):
        return "jsonl"  # its first row is broken
    return _table_format(text, path)


def _is_record(line: bytes) -> bool:
    """Whether a line may be a record by itself: one that is cut or broken still ends as one, or is followed by others."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return len(line) > 2 and (not line.endswith((b"{", b"[", b",")))


def _table_format(text: bytes, path: str) -> str:
    lines = text.split(b"\n")[:5]
    ending = next((name for name in ("csv", "tsv") if f".{name}" in Path(path).name.lower()), "")
    for name, separator in (("tsv", b"\t"), ("csv", b",")):
        if ending == name or (not ending and len(lines) > 1 and separator in lines[0] and _even(lines, separator)):
            return name
    return "lines"


def _even(lines: list[bytes], separator: bytes) -> bool:
    return len({line.count(separator) for line in lines if line}) == 1 and b" " not in lines[0].replace(b", ", b",")


def pieces_of(file: int, path: str, kind: str) -> Iterator[Piece]:
    """The pieces of a file, the same on every machine. A piece over 72 MiB is one line that no one may load."""
    if kind not in ("jsonl", "lines") or _must_stream(path):
        yield Piece(file)
        return
    start, offset, first, lines = 0, 0, 1, 0
    with Path(path).open("rb") as raw:
        while block := raw.read(PIECE_BYTES):
            cut = block.rfind(b"\n") + 1
            lines += count_lines(block)
            offset += len(block)
            if cut:
                stop = offset - len(block) + cut
                yield Piece(file, start, stop, first)
                start, first = stop, 1 + lines
    if offset > start:
        yield Piece(file, start, offset, first)


def _must_stream(path: str) -> bool:
    """Compressed text, and text of two or four bytes a character, is read from its beginning."""
    with Path(path).open("rb") as raw:
        head = raw.read(256)
    return head.startswith((*_PACKED, b"\xff\xfe", b"\xfe\xff")) or b"\0" in head


def rows_of(path: str, kind: str, piece: Piece) -> Iterator[Row]:
    """The rows of a piece. Raises InputError for a file that cannot be read."""
    if kind == "jsonl":
        return _json_rows(_lines(path, piece))
    if kind == "lines":
        return ((row, *_decoded(line)) for row, line in _lines(path, piece) if line is None or line.strip())
    if kind in ("csv", "tsv"):
        return _table_rows(path, "," if kind == "csv" else "\t")
    return _document_rows(path) if kind == "json" else _column_rows(path, kind)


def _lines(path: str, piece: Piece) -> Iterator[tuple[int, bytes | None]]:
    """(row, line); None for a line that is too long to be read."""
    if not piece.stop:
        yield from _streamed(path)
        return
    if piece.stop - piece.start > PIECE_BYTES + MOST_LINE_BYTES:
        yield piece.first, None
        return
    with Path(path).open("rb") as raw:
        raw.seek(piece.start)
        block = raw.read(piece.stop - piece.start)
    if piece.start == 0:
        block = block.removeprefix(b"\xef\xbb\xbf")
    yield from enumerate(block.removesuffix(b"\n").split(b"\n"), piece.first)


def _streamed(path: str) -> Iterator[tuple[int, bytes | None]]:
    with closing(LogInput(path)) as log:
        row = 0
        for chunk in log.chunks():
            for line in chunk.removesuffix(b"\n").split(b"\n"):
                row += 1
                yield row, line
        for row in log.overlong():
            yield row, None


def _decoded(line: bytes | None) -> tuple[str | Bad, bool]:
    if line is None:
        return Bad("TPD004", f"longer than {MOST_LINE_BYTES >> 20} MiB"), False
    try:
        return line.decode().rstrip("\r"), False
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").rstrip("\r"), True


def _json_rows(lines: Iterator[tuple[int, bytes | None]]) -> Iterator[Row]:
    decode = msgspec.json.Decoder().decode
    for row, line in lines:
        if line is None:
            yield row, *_decoded(None)
            continue
        try:
            yield row, decode(line), False
        except (ValueError, RecursionError):
            if line.strip():
                yield row, *_leniently(line)


def _leniently(line: bytes) -> tuple[Any, bool]:
    """The row as the standard library reads it: NaN, lone surrogates, bytes that are no UTF-8."""
    text, replaced = _decoded(line)
    try:
        return json.loads(str(text)), replaced
    except (ValueError, RecursionError) as error:
        return Bad("TPD003", f"{str(error).partition(': line')[0]}: {str(text)[:60]}"), replaced


def _whole(path: str) -> bytes:
    with closing(LogInput(path)) as log:
        return log.read()


def _document_rows(path: str) -> Iterator[Row]:
    """The records of one JSON document: a list, an object of columns or lists, or one record."""
    data = _whole(path)
    replaced = False
    try:
        document = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        text = data.decode("utf-8", "replace")
        replaced = "\ufffd" in text
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield 1, Bad("TPD003", str(error)[:100]), False
            return
    records = document if isinstance(document, list) else _records_in(document)
    for row, record in enumerate(records, 1):
        yield row, record, replaced


def _records_in(document: Any) -> list[Any]:
    if not isinstance(document, dict):
        return [document]
    lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if any(name in document for name in ("messages", "conversations", "chosen")):
        return [document]
    return max(lists, key=len) if lists else [document]


def _table_rows(path: str, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(MOST_CELL_CHARACTERS)
    text = _whole(path)
    decoded = text.decode("utf-8", "replace")
    reader = csv.reader(
        io.StringIO(decoded, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
    )
    try:
        names = next(reader, [])
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(names):
                yield reader.line_num, Bad("TPD003", f"{len(cells)} columns instead of {len(names)}"), False
            else:
                replaced = "\ufffd" in "".join(cells) and b"\xef\xbf\xbd" not in text
                yield reader.line_num, dict(zip(names, cells, strict=True)), replaced
    except csv.Error as error:
        yield reader.line_num + 1, Bad("TPD003", str(error)), False


def _column_rows(path: str, kind: str) -> Iterator[Row]:
    pyarrow = needed("pyarrow", f"{path}: Parquet and Arrow files")
    row = 0
    try:
        for batch in _batches(pyarrow, path, kind):
            for record in batch.to_pylist():
                row += 1
                yield row, record, False
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0][:150]}") from None


def _batches(pyarrow: Any, path: str, kind: str) -> Iterator[Any]:
    if kind == "parquet":
        parquet = needed("pyarrow.parquet", path, "pyarrow")
        yield from parquet.ParquetFile(path).iter_batches(batch_size=1024)
        return
    ipc = needed("pyarrow.ipc", path, "pyarrow")
    with pyarrow.memory_map(path) as source:
        yield from ipc.open_stream(source)
