"""The work on a Ray cluster, by Ray Data: each piece is a row, and what was found in it comes back as the bytes of a partial.

The cluster is that of the environment variable RAY_ADDRESS; without it, one is started on this machine. Its machines need
trainproof and the same paths to the data.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from trainproof.preflight.extras import needed
from trainproof.preflight.found import Partial
from trainproof.preflight.inputs import Plan, without_pieces
from trainproof.preflight.rows import Piece
from trainproof.preflight.running import Seen, run_pieces
from trainproof.preflight.sharding import packed, unpacked


def run_on_ray(plan: Plan, pieces: Sequence[Piece], workers: int, seen: Seen) -> Iterator[Partial]:
    """The partials of the pieces, in their order. Ray replaces a worker that dies. Raises InputError without Ray."""
    ray = needed("ray", "--engine ray: runs", "ray[data]")
    data = needed("ray.data", "--engine ray: runs", "ray[data]")
    if not ray.is_initialized():
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
        ray.init(log_to_driver=False, logging_level="ERROR", **here)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    small = without_pieces(plan)

    def done(row: dict[str, Any]) -> dict[str, bytes]:
        (part,) = run_pieces(small, [Piece(*map(int, row["item"]))], 1)
        return {"partial": packed((), small, (), part)}

    rows = data.from_items([list(piece) for piece in pieces], override_num_blocks=len(pieces)).map(done)
    for row in rows.iter_rows():
        seen()
        yield unpacked(row["partial"], "a piece on Ray")[1]
