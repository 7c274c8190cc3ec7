"""Tokenizers that are a plain table: tiktoken's ranks, and the characters of speech models."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from trainproof.errors import InputError
from trainproof.preflight.extras import needed

#: encode and decode, and id -> piece
Table = tuple[Callable[[str], list[int]], Callable[[Sequence[int]], str], dict[int, str]]

_RANK = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s*\Z")
#: number of a character that the table does not have
UNKNOWN = -1
_SPECIAL = ("pad", "eos", "bos", "blank")


def is_tiktoken(data: bytes) -> bool:
    """Whether a file has a token in base 64 and its rank in each line."""
    return bool(_RANK.match(data.partition(b"\n")[0]))


def tiktoken_table(file: Path, data: bytes) -> Table:
    """A file of ranks, split as GPT-2 does: the file itself does not say how its texts are split. Raises InputError, ValueError."""
    library = needed("tiktoken", f"{file}: tiktoken files")
    split = needed("tiktoken_ext.openai_public", f"{file}: tiktoken files", "tiktoken").r50k_pat_str
    ranks: dict[bytes, int] = {}
    for line in data.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[base64.b64decode(token, validate=True)] = int(rank)
    missing = [byte for byte in range(256) if bytes((byte,)) not in ranks]
    if missing:  # the library panics on a text that has one
        raise InputError(f"{file}: a tiktoken file without {len(missing)} of the 256 bytes")
    model = library.Encoding("ranks", pat_str=split, mergeable_ranks=ranks, special_tokens={})
    pieces = {rank: token.decode("utf-8", "backslashreplace") for token, rank in ranks.items()}
    return lambda text: list(model.encode_ordinary(text)), lambda ids: str(model.decode(list(ids))), pieces


def characters_of(document: dict[str, Any]) -> dict[str, int] | None:
    """Character -> number, of a configuration or vocabulary; None for what has none.

    Coqui TTS writes them as `characters`, Piper as `phoneme_id_map`, models of CTC as a vocab.json of characters and numbers.
    """
    own = document.get("characters")
    if isinstance(own, dict) and isinstance(own.get("characters"), str):
        marks = [own[name] for name in _SPECIAL if isinstance(own.get(name), str) and own[name]]
        listed = [*marks, *own["characters"], *str(own.get("punctuations") or "")]
        return {character: number for number, character in enumerate(dict.fromkeys(listed))}
    own = document.get("phoneme_id_map")
    if isinstance(own, dict):
        return {str(sign): ids[0] for sign, ids in own.items() if isinstance(ids, list) and ids and type(ids[0]) is int}
    if document and all(type(number) is int for number in document.values()) and all(map(_is_sign, document)):
        return {" " if sign == "|" else sign: number for sign, number in document.items()}
    return None


def _is_sign(name: str) -> bool:
    return len(name) == 1 or (name[:1] in "<[" and name[-1:] in ">]")


def lowers(signs: Iterable[str]) -> bool:
    """Whether a table of characters has letters, and no capitals: its texts are lowered before they are looked up."""
    single = [sign for sign in signs if len(sign) == 1]
    return any(sign.islower() for sign in single) and not any(sign.isupper() for sign in single)


def character_table(file: Path, document: dict[str, Any], numbers: dict[str, int]) -> Table:
    """The characters of a speech model; texts are lowered where it has no capitals. Raises InputError for one of phonemes."""
    if document.get("use_phonemes") is True or (
        "phoneme_id_map" in document and document.get("phoneme_type") != "text"
    ):
        raise InputError(f"{file}: its characters are phonemes; texts are not looked up in them")
    pieces = {number: sign for sign, number in numbers.items()}
    lower = lowers(numbers)

    def encode(text: str) -> list[int]:
        return [numbers.get(sign, UNKNOWN) for sign in (text.lower() if lower else text)]

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces.get(number, "") for number in ids)

    return encode, decode, pieces
