"""Tokenizers by their files, without the frameworks that made them; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from trainproof.errors import InputError
from trainproof.preflight.extras import needed


@lru_cache(maxsize=2)
def counter_of(path: str | None) -> Callable[[str], int] | None:
    """How many tokens a text becomes; None without a tokenizer. Raises InputError."""
    if path is None:
        return None
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InputError(f"{path}: no tokenizer; expected tokenizer.json, a folder with one, or a SentencePiece .model")
    try:
        if file.suffix == ".json":
            encode = needed("tokenizers", f"{path}: tokenizer.json files").Tokenizer.from_file(str(file)).encode
            return lambda text: len(encode(text, add_special_tokens=False))
        processor = needed("sentencepiece", f"{path}: SentencePiece models").SentencePieceProcessor()
        processor.LoadFromSerializedProto(file.read_bytes())
    except InputError:
        raise
    except Exception as error:  # both libraries raise what they like on damage
        raise InputError(f"{path}: no tokenizer that can be read ({str(error).splitlines()[0][:100]})") from None
    return lambda text: len(processor.EncodeAsIds(text))
