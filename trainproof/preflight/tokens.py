"""Tokenizers by their files, without the frameworks that made them; nothing in them is executed.

SentencePiece models, tokenizer.json, and folders of Hugging Face with either. Pickled tokenizers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainproof.errors import InputError
from trainproof.preflight.extras import needed


class Tokenizer(NamedTuple):
    """encode: text -> ids, without special tokens; decode: ids -> text. `vocabulary` is id -> piece; `settings` are those beside it."""

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

    def is_byte(self, token: int) -> bool:
        """Whether a token is a byte that stands for a part of a character."""
        piece = self.vocabulary.get(token, "")
        return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def read_tokenizer(path: str) -> Tokenizer:
    """Raises InputError for what is no tokenizer, or one that only unpickling would read."""
    named = Path(path)
    folder = named if named.is_dir() else named.parent
    file = _file_in(named) if named.is_dir() else named
    if not file.is_file():
        raise InputError(f"{path}: no tokenizer; expected tokenizer.json, a folder with one, or a SentencePiece .model")
    if file.suffix in (".pkl", ".pickle"):
        raise InputError(f"{path}: a pickled tokenizer is never loaded; save it as tokenizer.json")
    beside = folder if named.is_dir() else None
    try:
        return _hugging_face(file, beside) if file.suffix == ".json" else _sentencepiece(file, beside)
    except InputError:
        raise
    except BaseException as error:  # both libraries raise what they like on damage; tokenizers panics
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(f"{path}: no tokenizer that can be read ({str(error).splitlines()[0][:100]})") from None


def _file_in(folder: Path) -> Path:
    names = [folder / "tokenizer.json", folder / "tokenizer.model", *sorted(folder.glob("*.model"))]
    return next((name for name in names if name.is_file()), names[0])


def _hugging_face(file: Path, folder: Path | None) -> Tokenizer:
    library = needed("tokenizers", f"{file}: tokenizer.json files")
    model = library.Tokenizer.from_file(str(file))
    vocabulary = {number: piece for piece, number in model.get_vocab(with_added_tokens=True).items()}
    document = _object(file)
    unknown = document.get("model", {}).get("unk_token")
    named = {"unk": unknown} if isinstance(unknown, str) else {}
    settings, rows, template = _beside(folder)
    special = _special({**named, **_declared(settings)}, vocabulary)
    return Tokenizer(
        str(file),
        "tokenizer.json",
        lambda text: list(model.encode(text, add_special_tokens=False).ids),
        lambda ids: str(model.decode(list(ids), skip_special_tokens=False)),
        vocabulary,
        special.get("unk"),
        special,
        settings,
        rows,
        template,
    )


def _sentencepiece(file: Path, folder: Path | None) -> Tokenizer:
    library = needed("sentencepiece", f"{file}: SentencePiece models")
    model = library.SentencePieceProcessor()
    model.LoadFromSerializedProto(file.read_bytes())
    vocabulary = {i: model.IdToPiece(i) for i in range(model.GetPieceSize())}
    settings, rows, template = _beside(folder)
    own = {"unk": model.unk_id(), "bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id()}
    special = {name: number for name, number in own.items() if number >= 0} | _special(_declared(settings), vocabulary)
    return Tokenizer(
        str(file),
        "SentencePiece",
        lambda text: list(model.EncodeAsIds(text)),
        lambda ids: str(model.DecodeIds(list(ids))),
        vocabulary,
        model.unk_id(),
        special,
        settings,
        rows,
        template,
    )


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


def _declared(settings: dict[str, Any]) -> dict[str, str]:
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


def rendered(tokenizer: Tokenizer, messages: list[dict[str, str]], prompt: bool) -> str:
    """A conversation by the chat template, in a sandbox in which nothing can be reached. Raises jinja2's TemplateError."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise TemplateError("repetition and powers are not rendered")
            return super().call_binop(context, operator, left, right)

    def refuse(message: str) -> None:
        raise TemplateError(str(message))

    environment = Bounded(trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(raise_exception=refuse, range=_range)
    environment.filters["tojson"] = lambda value, **_: msgspec.json.encode(value).decode()
    named = {f"{name}_token": piece for name, piece in _declared(tokenizer.settings).items()}
    return environment.from_string(tokenizer.template or "").render(
        messages=messages, add_generation_prompt=prompt, **named
    )


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > 10_000:
        raise ValueError("a range of more than 10,000")
    return numbers
