"""Tokenizers by their files, without the frameworks that made them; nothing in them is executed.

SentencePiece models, tokenizer.json, tiktoken files, vocabularies of speech models, and folders of Hugging Face with one of them. Pickled
tokenizers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.preflight.extras import needed
from trainproof.preflight.vocabularies import (
    UNKNOWN,
    character_table,
    characters_of,
    is_tiktoken,
    lowers,
    tiktoken_table,
)

#: no tokenizer is larger
MOST_BYTES = 256 * 1024**2


#: in place of a token's text that depends on its neighbours; half of a surrogate pair, which no text to encode has
NOT_ALONE = "\ud800"
#: encode and decode, of many at once
Many = tuple[Callable[[list[str]], list[list[int]]], Callable[[list[list[int]]], list[str]]]


class Tokenizer(NamedTuple):
    """encode: text -> ids, without special tokens; decode: ids -> text; `many`: both of many at once, where the library can.
    `vocabulary` is id -> piece; `settings` are those beside it. `joined`, where decoding joins what tokens stand for and
    strips the ends: id -> that, or NOT_ALONE."""

    path: str
    kind: str
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    vocabulary: dict[int, str]
    unknown: int | None
    special: dict[str, int]
    settings: dict[str, Any]
    rows: int | None  # of the embedding, as config.json says
    template: str | None
    lowers: bool = False  # texts before they are looked up
    many: Many | None = None
    joined: list[str] | None = None

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text."""
        return list(map(self.encode, texts)) if self.many is None else self.many[0](texts)

    def decode_all(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids."""
        return list(map(self.decode, ids)) if self.many is None else self.many[1](ids)

    def byte_tokens(self) -> frozenset[int]:
        """The tokens that are bytes, which stand for parts of characters."""
        return frozenset(
            token
            for token, piece in self.vocabulary.items()
            if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
        )


def read_tokenizer(path: str) -> Tokenizer:
    """Raises InputError for what is no tokenizer, or one that only unpickling would read."""
    named = Path(path)
    file = _file_in(named) if named.is_dir() else named
    try:
        if file.exists() and not file.is_file():  # a pipe would wait for ever
            raise InputError(f"{path}: not a regular file, expected a tokenizer")
        with file.open("rb") as raw:
            head = raw.read(4096)
            if file.stat().st_size > MOST_BYTES:
                raise InputError(f"{path}: more than {MOST_BYTES >> 20} MiB, expected a tokenizer")
            data = head + raw.read(MOST_BYTES)
    except OSError as error:
        raise InputError(
            f"{path}: no tokenizer ({error.strerror or error}); expected tokenizer.json, a folder with one, a SentencePiece "
            "model, a tiktoken file, or a vocabulary of characters"
        ) from None
    if file.suffix in (".pkl", ".pickle") or head.startswith(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
    ):
        raise InputError(f"{path}: a pickled tokenizer is never loaded; save it as tokenizer.json")
    try:
        return _read(file, data, named if named.is_dir() else None)
    except InputError:
        raise
    except BaseException as error:  # the libraries raise what they like on damage; tokenizers panics
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        said = str(error).splitlines()
        raise InputError(f"{path}: no tokenizer that can be read ({said[0][:100] if said else ''})") from None


def _read(file: Path, data: bytes, folder: Path | None) -> Tokenizer:
    """A file by its content. folder: of Hugging Face, whose other files count too."""
    if data.lstrip()[:1] == b"{":
        document = json.loads(data)
        numbers = None if isinstance(document.get("model"), dict) else characters_of(document)
        if numbers is not None:
            table = character_table(file, document, numbers)
            return _made(file, "characters", *table, UNKNOWN, {}, folder, lowers(numbers))
        return _hugging_face(file, data, document, folder)
    if is_tiktoken(data):
        return _made(file, "tiktoken", *tiktoken_table(file, data), None, {}, folder)
    return _sentencepiece(file, data, folder)


def _made(
    file: Path,
    kind: str,
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str],
    vocabulary: dict[int, str],
    unknown: int | None,
    own: dict[str, int],
    folder: Path | None,
    lower: bool = False,
    many: Many | None = None,
    joined: list[str] | None = None,
) -> Tokenizer:
    """The tokenizer with what lies beside it. own: special tokens that its file declares."""
    settings, rows, template = _beside(folder)
    special = own | _special(declared(settings), vocabulary)
    if unknown is None:
        unknown = special.get("unk")
    return Tokenizer(
        str(file), kind, encode, decode, vocabulary, unknown, special, settings, rows, template, lower, many, joined
    )


def _file_in(folder: Path) -> Path:
    names = [folder / "tokenizer.json", folder / "tokenizer.model", *sorted(folder.glob("*.model"))]
    names += [*sorted(folder.glob("*.tiktoken")), folder / "vocab.json"]
    return next((name for name in names if name.is_file()), names[0])


def _hugging_face(file: Path, data: bytes, document: dict[str, Any], folder: Path | None) -> Tokenizer:
    library = needed("tokenizers", f"{file}: tokenizer.json files")
    model = library.Tokenizer.from_buffer(data)
    vocabulary = {number: piece for piece, number in model.get_vocab(with_added_tokens=True).items()}
    unknown = document.get("model", {}).get("unk_token")
    own = _special({"unk": unknown}, vocabulary) if isinstance(unknown, str) else {}

    def encode(text: str) -> list[int]:
        return list(model.encode(text, add_special_tokens=False).ids)

    def decode(ids: Sequence[int]) -> str:
        return str(model.decode(list(ids), skip_special_tokens=False))

    if not {"[SPACE]", "[STOP]"} <= set(vocabulary.values()):
        many, joined = _batches(model), _of_bytes(document, vocabulary)
        return _made(file, "tokenizer.json", encode, decode, vocabulary, None, own, folder, False, many, joined)
    return _made(
        file,
        "VoiceBpe",  # of Coqui: texts are lowered, and spaces are a token
        lambda text: encode(" ".join(text.lower().split()).replace(" ", "[SPACE]")),
        lambda ids: "".join(vocabulary.get(number, "") for number in ids).replace("[SPACE]", " "),
        vocabulary,
        None,
        own,
        folder,
        True,
    )


def _batches(model: Any) -> Many:
    """Many texts at once, without where in the text each token stands, if this version of the library can leave that out."""
    encode = getattr(model, "encode_batch_fast", model.encode_batch)
    return (
        lambda texts: [found.ids for found in encode(texts, add_special_tokens=False)],
        lambda ids: list(model.decode_batch(ids, skip_special_tokens=False)),
    )


def _of_bytes(document: dict[str, Any], vocabulary: dict[int, str]) -> list[str] | None:
    """What tokens stand for where bytes are written as letters, as GPT-2 does (encoder.py, bytes_to_unicode): those that
    are letters already stay, the others follow from U+0100 on. None for another decoder, or numbers with gaps."""
    decoder = document.get("decoder")
    if (
        not isinstance(decoder, dict)
        or decoder.get("type") != "ByteLevel"
        or len(vocabulary) <= max(vocabulary, default=0)
    ):
        return None
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    letters |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)).difference(plain)))}
    added = {token["id"] for token in document.get("added_tokens") or ()}  # written as they are
    joined = [NOT_ALONE] * len(vocabulary)
    for number, piece in vocabulary.items():
        if number not in added and letters.keys() >= set(piece):
            with suppress(UnicodeDecodeError):
                joined[number] = bytes(map(letters.__getitem__, piece)).decode()
    return joined


def _sentencepiece(file: Path, data: bytes, folder: Path | None) -> Tokenizer:
    library = needed("sentencepiece", f"{file}: SentencePiece models")
    model = library.SentencePieceProcessor()
    model.LoadFromSerializedProto(data)
    vocabulary = dict(enumerate(map(model.IdToPiece, range(model.GetPieceSize()))))
    own = {"unk": model.unk_id(), "bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id()}
    return _made(
        file,
        "SentencePiece",
        lambda text: list(model.EncodeAsIds(text)),
        lambda ids: str(model.DecodeIds(list(ids))),
        vocabulary,
        model.unk_id(),
        {name: number for name, number in own.items() if number >= 0},
        folder,
        many=(lambda texts: list(map(model.EncodeAsIds, texts)), lambda ids: list(map(model.DecodeIds, ids))),
        joined=[_of_piece(model, number, piece) for number, piece in vocabulary.items()],
    )


def _of_piece(model: Any, number: int, piece: str) -> str:
    """What a piece of SentencePiece stands for: U+2581 is a space; one of the bytes below 0x80 is a character."""
    if model.IsByte(number):
        return chr(int(piece[3:5], 16)) if piece < "<0x80>" else NOT_ALONE
    return NOT_ALONE if model.IsControl(number) or model.IsUnknown(number) else piece.replace("\u2581", " ")


def _beside(folder: Path | None) -> tuple[dict[str, Any], int | None, str | None]:
    """tokenizer_config.json, the rows of the embedding, and the chat template of a folder."""
    if folder is None:
        return {}, None, None
    settings, config = _object(folder / "tokenizer_config.json"), _object(folder / "config.json")
    rows = config.get(
        "vocab_size",
        config.get("text_config", {}).get("vocab_size") if isinstance(config.get("text_config"), dict) else None,
    )
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = next(
            (one.get("template") for one in template if isinstance(one, dict) and one.get("name") == "default"), None
        )
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text("utf-8", "replace")
    return settings, rows if isinstance(rows, int) else None, template if isinstance(template, str) else None


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path}: no JSON") from None
    return document if isinstance(document, dict) else {}


def declared(settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens of tokenizer_config.json."""
    found = {}
    for name in ("unk", "bos", "eos", "pad"):
        value = settings.get(f"{name}_token")
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _special(named: dict[str, str], vocabulary: dict[int, str]) -> dict[str, int]:
    """Special tokens by number; -1 for one that is not in the vocabulary."""
    numbers = {piece: number for number, piece in vocabulary.items()}
    return {name: numbers.get(piece, -1) for name, piece in named.items()}


@lru_cache(maxsize=2)
def counter_of(path: str | None) -> Callable[[str], int] | None:
    """How many tokens a text becomes; None without a tokenizer. Raises InputError."""
    if path is None:
        return None
    encode = read_tokenizer(path).encode
    return lambda text: len(encode(spelled(text)))


def spelled(text: str) -> str:
    """The text without halves of surrogate pairs, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
