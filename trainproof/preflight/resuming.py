"""What was found in each piece, kept as files while the work goes on: after a kill only the pieces that are missing are done.

A file is named by everything that its content depends on: the options, the piece, the size and the time of the file that was read. Of
speech that is the manifest; sounds that were changed under the same name are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

import msgspec

from trainproof import __version__
from trainproof.errors import InputError
from trainproof.output import write_whole
from trainproof.preflight.found import Partial
from trainproof.preflight.inputs import Plan, without_pieces
from trainproof.preflight.rows import Piece
from trainproof.preflight.running import Runner, Seen
from trainproof.preflight.sharding import load, packed
from trainproof.preflight.stores import version_of


def run_kept(
    run: Runner, folder: str, plan: Plan, pieces: Sequence[Piece], workers: int, seen: Seen
) -> Iterator[Partial]:
    """The partials of the pieces, in their order; what is not in the folder is done by `run` and written there as it comes.

    Raises InputError when the folder cannot be written to.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    paths = [Path(folder) / f"{_key(plan, piece)}.partial" for piece in pieces]
    missing = [_kept(path) is None for path in paths]
    parts = run(plan, list(compress(pieces, missing)), workers, seen)
    for piece, path, lacks in zip(pieces, paths, missing, strict=True):
        part = None if lacks else _kept(path)
        if part is not None:
            seen()
        else:
            part = next(parts)
            if "TPD009" not in part.places:  # a process that was killed is no fault of the data for ever
                write_whole(path, packed((), without_pieces(plan), (piece.first,), part))
        yield part


def _kept(path: Path) -> Partial | None:
    """What the file has; None when there is none, or a broken one."""
    try:
        return load(str(path))[1]
    except InputError:
        return None


def _key(plan: Plan, piece: Piece) -> str:
    from xxhash import xxh3_128_hexdigest

    about = version_of(plan.files[piece.file].path)
    return xxh3_128_hexdigest(msgspec.json.encode((__version__, without_pieces(plan), piece, about)))
