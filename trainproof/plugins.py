"""Readers and rules of other packages, found by their entry points: groups `trainproof.readers` and `trainproof.rules`.

A plug-in that cannot be loaded is named with its distribution in a PluginWarning and costs nothing else.
TRAINPROOF_PLUGINS=0 leaves them all out.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

READERS, RULES = "trainproof.readers", "trainproof.rules"


class PluginWarning(UserWarning):
    """A plug-in was left out, or failed at its work."""


class Plugin(NamedTuple):
    """One entry point: its name, the distribution that declares it, and what loads it."""

    name: str
    distribution: str
    load: Callable[[], Any]

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.distribution}"


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """The plug-ins of a group, by name."""
    if os.environ.get("TRAINPROOF_PLUGINS") == "0" or not _any_declared():
        return ()
    from importlib.metadata import entry_points

    found = [Plugin(entry.name, _distribution(entry.dist), entry.load) for entry in entry_points(group=group)]
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.distribution)))


def broken(plugin: Plugin, error: BaseException) -> None:
    """Tell that a plug-in does not work."""
    warnings.warn(f"{plugin} is left out: {described(error)}", PluginWarning, stacklevel=2)


def described(error: BaseException) -> str:
    """The error in one line: its kind, and the first 300 characters of what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _any_declared() -> bool:
    """Whether any installed distribution declares a plug-in.

    Looking through their metadata takes a millisecond; importlib.metadata takes as long to import as numpy.
    """
    return any(b"[trainproof." in text for text in _declarations())


def _declarations() -> Iterator[bytes]:
    """The entry points that the distributions in the folders of sys.path declare."""
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                places = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for place in places:
            try:
                yield Path(place, "entry_points.txt").read_bytes()
            except OSError:
                continue


def _distribution(distribution: Any) -> str:
    return f"{distribution.name} {distribution.version}" if distribution is not None else "an unknown distribution"
