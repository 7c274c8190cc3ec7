"""What a tokenizer makes of texts, and of a conversation by its chat template."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.preflight.clips import clips_of
from trainproof.preflight.found import DataFile, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.rows import rows_of
from trainproof.preflight.tokens import Tokenizer, read_tokenizer, rendered, spelled
from trainproof.preflight.turns import layout_of, sample_of

#: texts that are encoded; more tell nothing new
MOST_TEXTS = 50_000
#: seconds that a chat template may take
PATIENCE = 20.0
#: a conversation whose every part can be found again
PROBE = (
    {"role": "system", "content": "Alpha rule."},
    {"role": "user", "content": "Bravo question?"},
    {"role": "assistant", "content": "Charlie answer."},
    {"role": "user", "content": "Delta question?"},
    {"role": "assistant", "content": "Echo answer."},
)


class Encoded(NamedTuple):
    """One text: its place, and what became of it. `loss` says how it comes back: "", case, accents, spaces or other."""

    file: str
    row: int
    text: str
    ids: Sequence[int]
    loss: str


class Rendering(NamedTuple):
    """The probe by the chat template: whole, up to the second question with and without a generation prompt; or the error."""

    whole: str = ""
    open: str = ""
    closed: str = ""
    error: str | None = None


class Tokenized(NamedTuple):
    """What the checks look at."""

    tokenizer: Tokenizer
    texts: list[Encoded]
    rendering: Rendering | None
    base: Tokenizer | None


def tokenized(model: str, paths: Sequence[str], base: str | None) -> Tokenized:
    """Read the tokenizers, encode the texts, render the probe. Raises InputError."""
    tokenizer = read_tokenizer(model)
    texts = [_encoded(tokenizer, *found) for found in islice(_texts(paths), MOST_TEXTS)]
    return Tokenized(tokenizer, texts, _rendering(model, tokenizer), read_tokenizer(base) if base else None)


def _texts(paths: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """(file, row, text) of the texts of data, transcripts of speech packs too."""
    if not paths:
        return
    plan = plan_of(paths, [], None, Options())
    for piece in plan.pieces:
        file: DataFile = plan.files[piece.file]
        if plan.kind == "speech":
            for clip in clips_of(file.path, plan.formats[piece.file])[piece.start : piece.stop]:
                yield file.path, clip.row, clip.text or ""
            continue
        for row, record, _ in rows_of(file.path, plan.formats[piece.file], piece):
            if isinstance(record, str):
                yield file.path, row, record
            elif isinstance(record, dict) and (layout := layout_of(frozenset(record))) is not None:
                yield from ((file.path, row, turn.text) for turn in sample_of(record, *layout).turns)


def _encoded(tokenizer: Tokenizer, file: str, row: int, text: str) -> Encoded:
    text = spelled(text)
    ids = tokenizer.encode(text)
    return Encoded(file, row, text, ids, _loss(text, tokenizer.decode(ids)) if text.strip() else "")


def _loss(text: str, again: str) -> str:
    """What the way through the tokenizer costs the text."""
    if text == again or text.strip() == again.strip():
        return ""
    if text.split() == again.split():
        return "spaces"
    mine, theirs = "".join(text.split()), "".join(again.split())
    if mine == theirs:
        return "spaces"
    if mine.casefold() == theirs.casefold():
        return "case"
    if unicodedata.normalize("NFKC", mine) == unicodedata.normalize("NFKC", theirs):
        return "forms"
    return "accents" if _bare(mine) == _bare(theirs) else "other"


def _bare(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


def _rendering(model: str, tokenizer: Tokenizer) -> Rendering | None:
    """The probe by the template, in a process of its own: a template that never ends is ended."""
    if tokenizer.template is None:
        return None
    from multiprocessing import get_context

    context = get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_render, args=(model, theirs), daemon=True)
    worker.start()
    theirs.close()
    try:
        if not mine.poll(PATIENCE):
            return Rendering(error=f"not rendered within {PATIENCE:g} s")
        said: Any = mine.recv()
        return Rendering(*said)
    except EOFError:
        return Rendering(error="the process that rendered it died")
    finally:
        worker.kill()
        worker.join()


def _render(model: str, answer: Any) -> None:
    try:
        tokenizer = read_tokenizer(model)
        messages = [dict(message) for message in PROBE]
        try:
            whole = rendered(tokenizer, messages, False)
        except Exception:  # a template may refuse the system role, and says so by raising
            messages = messages[1:]
            whole = rendered(tokenizer, messages, False)
        texts = (whole, rendered(tokenizer, messages[:-1], True), rendered(tokenizer, messages[:-1], False))
        answer.send((*(text[:100_000] for text in texts), None))
    except InputError as error:
        answer.send(("", "", "", str(error)))
    except Exception as error:  # whatever a template raises
        answer.send(("", "", "", f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}"))
