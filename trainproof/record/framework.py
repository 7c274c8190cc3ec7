"""torch, imported only when something is recorded or run again."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from trainproof.errors import UsageError


@cache
def torch() -> Any:
    """The module torch. Raises UsageError when it is not installed."""
    try:
        return import_module("torch")
    except ImportError:
        raise UsageError("this needs torch; install it with: pip install 'trainproof[torch]'") from None
