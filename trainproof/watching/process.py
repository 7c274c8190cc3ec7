"""Whether the process that writes a log still runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended. On Linux one that nobody has waited for yet counts as ended; `os.kill`
    with signal 0, which only asks, cannot tell that apart elsewhere."""
    with suppress(OSError, IndexError):
        # the state comes after the name in brackets, which may hold brackets itself: man 5 proc
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZXx"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True
