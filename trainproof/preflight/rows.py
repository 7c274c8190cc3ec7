"""Files of records, whatever they lie in: their format by content, the pieces that are worked on apart, and their rows."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from trainproof.errors import InputError
from trainproof.preflight.extras import needed
from trainproof.preflight.stores import is_stored, path_of, version_of
from trainproof.readers.source import MOST_DOCUMENT_BYTES, MOST_LINE_BYTES, LogInput, count_lines

#: bytes of lines that one worker reads at once
PIECE_BYTES = 8 * 1024 * 1024
#: bytes of lines that are in memory at once
BLOCK_BYTES = 128 * 1024
#: a cell of a table may not be longer
MOST_CELL_CHARACTERS = 16 * 1024 * 1024
#: characters of a column's name; a first row with longer ones is a row
MOST_NAME = 60
#: files in a folder that hold records; others are passed over
RECORD_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
PACKED_ENDINGS = (".gz", ".zst", ".xz")

_MARK = b"\xef\xbb\xbf"  # of the order of bytes, at the beginning of a file
_PARQUET, _ARROW = b"PAR1", b"\xff\xff\xff\xff"
#: sounds, pictures, programs, archives and prints hold no records
_BINARY = (
    b"RIFF",
    b"fLaC",
    b"OggS",
    b"ID3",
    b"\x7fELF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"%PDF",
    b"\x80\x04",
    b"\0\0\0\0",
)
#: what a file that is called a text begins with if it is JSON; others have brackets too
_JSON_HEAD = re.compile(rb'\{\s*"|\[\s*["{]')
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


class Alike(NamedTuple):
    """Records of rows that follow one another, decoded to the type that was wanted; and their lines."""

    records: list[Any]
    lines: bytes


class Block(NamedTuple):
    """Whole lines, rows `first` to before `stop`; None for a line that is too long to be read."""

    first: int
    stop: int
    lines: bytes | None


#: (row number from 1, the record or what is wrong with it, whether bytes of it had to be replaced)
Row = tuple[int, Any, bool]


class DataInput(LogInput):
    """One file of data, of this machine or of a store."""

    def regular(self) -> IO[bytes]:
        if not is_stored(self.path):
            return super().regular()
        try:
            return path_of(self.path).open("rb")
        except OSError as error:
            what = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
            raise InputError(f"{self.path}: {what}") from None


def format_of(path: str) -> str:
    """jsonl, json, parquet, arrow, csv, tsv or lines, by content. Raises InputError when the file cannot be read or is empty."""
    with closing(DataInput(path)) as log:
        head = log.head
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith(_ARROW):
        return "arrow"
    if head.startswith(_BINARY):
        raise InputError(f"{path}: a binary file without records; expected {', '.join(RECORD_ENDINGS)}, also packed")
    text = head.lstrip()
    first = text.split(b"\n", 1)[0].strip()
    if ".txt" in Path(path).suffixes and not _JSON_HEAD.match(text):
        return _table_format(text, path)
    if text[:1] == b"{":
        return "json" if first == b"{" or not _is_record(first) else "jsonl"
    if text[:1] == b"[":
        return "json"
    if b"\n{" in text[: len(first) + 3] or any(name in (".jsonl", ".ndjson") for name in Path(path).suffixes):
        return "jsonl"  # its first row is broken
    if ".json" in Path(path).suffixes:
        return "json"  # and this is none
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
    with path_of(path).open("rb") as raw:
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
    with path_of(path).open("rb") as raw:
        head = raw.read(256)
    return head.startswith((*_PACKED, b"\xff\xfe", b"\xfe\xff")) or b"\0" in head


def rows_of(path: str, kind: str, piece: Piece, typed: Callable[[Any], Any] = lambda _: None) -> Iterator[Row]:
    """The rows of a piece. Raises InputError for a file that cannot be read.

    typed: gives a type for records like the first one, or None. Rows of JSONL that fit it are given together, as Alike.
    """
    if kind == "jsonl":
        return _json_rows(_blocks(path, piece), typed)
    if kind == "lines":
        lines = (found for block in _blocks(path, piece) for found in _lines(block))
        return ((row, *_decoded(line)) for row, line in lines if line is None or line.strip())
    if kind in ("csv", "tsv"):
        return _table_rows(path, "," if kind == "csv" else "\t")
    return _document_rows(path) if kind == "json" else _column_rows(path, kind)


def _blocks(path: str, piece: Piece) -> Iterator[Block]:
    if not piece.stop:
        yield from _streamed(path)
        return
    if piece.stop - piece.start > PIECE_BYTES + MOST_LINE_BYTES:
        yield Block(piece.first, piece.first + 1, None)
        return
    row, rest = piece.first, [b""]
    with path_of(path).open("rb") as raw:
        raw.seek(piece.start)
        if piece.start == 0 and raw.read(len(_MARK)) != _MARK:
            raw.seek(0)
        while read := raw.read(min(BLOCK_BYTES, piece.stop - raw.tell())):
            if cut := read.rfind(b"\n") + 1:
                block = _block(row, b"".join([*rest, memoryview(read)[:cut]]))
                row, rest = block.stop, []
                yield block
            rest.append(read[cut:])
    if any(rest):
        yield _block(row, b"".join(rest))


def _block(row: int, lines: bytes) -> Block:
    return Block(row, row + count_lines(lines) + (not lines.endswith(b"\n")), lines)


def _lines(block: Block) -> Iterator[tuple[int, bytes | None]]:
    """(row, line) of a block."""
    if block.lines is None:
        return iter([(block.first, None)])
    return enumerate(block.lines.removesuffix(b"\n").split(b"\n"), block.first)


def _streamed(path: str) -> Iterator[Block]:
    with closing(DataInput(path)) as log:
        row = 1
        for chunk in log.chunks():
            block = _block(row, chunk)
            row = block.stop
            yield block
        for row in log.overlong():
            yield Block(row, row + 1, None)


def _decoded(line: bytes | None) -> tuple[str | Bad, bool]:
    if line is None:
        return Bad("TPD004", f"longer than {MOST_LINE_BYTES >> 20} MiB"), False
    try:
        return line.decode().rstrip("\r"), False
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").rstrip("\r"), True


def _json_rows(blocks: Iterator[Block], typed: Callable[[Any], Any]) -> Iterator[Row]:
    decoder: msgspec.json.Decoder[Any] | None = None
    for number, block in enumerate(blocks):
        if number == 0:
            decoder = _decoder(block, typed)
        if decoder is not None and (alike := _together(decoder, block)) is not None:
            yield block.first, alike, False
        else:
            yield from _singly(block, decoder)


def _decoder(block: Block, typed: Callable[[Any], Any]) -> msgspec.json.Decoder[Any] | None:
    """What decodes records like the first one of a block."""
    try:
        wanted = typed(msgspec.json.decode((block.lines or b"").partition(b"\n")[0]))
    except (ValueError, RecursionError):
        return None
    return None if wanted is None else msgspec.json.Decoder(wanted)


def _together(decoder: msgspec.json.Decoder[Any], block: Block) -> Alike | None:
    """The records of a block, if each line is one of the decoder's type."""
    lines = block.lines or b""
    try:
        records = decoder.decode_lines(lines)
    except (ValueError, RecursionError):
        return None
    return Alike(records, lines) if len(records) == block.stop - block.first else None


def _singly(block: Block, decoder: msgspec.json.Decoder[Any] | None) -> Iterator[Row]:
    """The rows of a block, those that are as the decoder wants still together."""
    decode = (decoder or msgspec.json.Decoder()).decode
    records: list[Any] = []
    lines: list[bytes] = []
    for row, line in _lines(block):
        try:
            record = decode(line or b"")
        except (ValueError, RecursionError):
            if records:
                yield row - len(records), Alike(records, b"\n".join(lines)), False
                records, lines = [], []
            if line is None or line.strip():
                yield row, *_leniently(line)
            continue
        if decoder is None:
            yield row, record, False
        else:
            records.append(record)
            lines.append(line or b"")
    if records:
        yield block.stop - len(records), Alike(records, b"\n".join(lines)), False


def _leniently(line: bytes | None) -> tuple[Any, bool]:
    """The row as what it is, or as the standard library reads it: NaN, lone surrogates, bytes that are no UTF-8."""
    if line is None:
        return _decoded(line)
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(line), False
    text, replaced = _decoded(line)
    try:
        return json.loads(str(text)), replaced
    except (ValueError, RecursionError) as error:
        return Bad("TPD003", f"{str(error).partition(': line')[0]}: {str(text)[:60]}"), replaced


def _whole(path: str) -> bytes:
    if version_of(path)[0] > MOST_DOCUMENT_BYTES:
        raise InputError(
            f"{path}: more than {MOST_DOCUMENT_BYTES >> 30} GiB in one document; write a record a line (JSONL)"
        )
    with closing(DataInput(path)) as log:
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
    damaged = "\ufffd" in decoded and b"\xef\xbf\xbd" not in text
    head = decoded.partition("\n")[0]
    if delimiter not in head:
        delimiter = next((other for other in ",;\t" if other in head), delimiter)
    reader = csv.reader(
        io.StringIO(decoded, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
    )
    try:
        names = next(reader, [])
        first: list[list[str]] = []
        if any(cell.isdigit() or len(cell) > MOST_NAME for cell in names):  # no names, but a row
            first, names = [names], [f"column {i}" for i in range(1, len(names) + 1)]
        for cells in chain(first, reader):
            if not cells:
                continue
            if len(cells) != len(names):
                yield reader.line_num, Bad("TPD003", f"{len(cells)} columns instead of {len(names)}"), False
            else:
                replaced = damaged and "\ufffd" in "".join(cells)
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
        with path_of(path).open("rb") as source:
            yield from parquet.ParquetFile(source).iter_batches(batch_size=1024)
        return
    ipc = needed("pyarrow.ipc", path, "pyarrow")
    with path_of(path).open("rb") if is_stored(path) else pyarrow.memory_map(path) as source:
        yield from ipc.open_stream(source)
