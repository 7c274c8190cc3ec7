"""Libraries that only some checks need: one that is missing is one line with what to type."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trainproof.errors import InputError


def needed(module: str, what: str, package: str | None = None) -> Any:
    """The module. Raises InputError with the command that installs it. what: needs it, such as "FLAC and MP3 files"."""
    try:
        return import_module(module)
    except ImportError:
        name = package or module
        raise InputError(f"{what} need {name}; install it with: pip install {name}") from None
    except OSError as error:  # a library of the system is missing
        raise InputError(f"{what} need {module}, which cannot be loaded: {error}") from None
