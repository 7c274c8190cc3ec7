"""Versions of packages with known faults: a small table, each entry with its date and source. As of 2026-11."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Version = tuple[int, ...]


class KnownFault(NamedTuple):
    """Versions from `first` on and before `before` of a package; `beside`: only with that package from a version on."""

    package: str
    first: Version
    before: Version
    what: str
    source: str
    date: str
    harmful: bool = False  # code that attacks whoever imports it
    beside: tuple[str, Version] | None = None


_LIGHTNING = "the release steals credentials when it is imported"

KNOWN_FAULTS = (
    KnownFault("lightning", (2, 6, 2), (2, 6, 4), _LIGHTNING, "GHSA-w37p-236h-pfx3", "2026-04-30", True),
    KnownFault("pytorch-lightning", (2, 6, 2), (2, 6, 4), _LIGHTNING, "GHSA-w37p-236h-pfx3", "2026-04-30", True),
    *(
        KnownFault(
            "ultralytics", (8, 3, patch), (8, 3, patch + 1), "the release mines coins", "ultralytics/ultralytics#18018",
            "2024-12-07", True,
        )
        for patch in (41, 42, 45, 46)
    ),
    KnownFault(
        "transformers", (0,), (4, 46), "with gradient accumulation the loss is not that of the whole batch: short micro-batches count more",
        "huggingface/transformers#34191", "2024-10-15",
    ),
    KnownFault(
        "transformers", (4, 47, 0), (4, 47, 1), "the loss is multiplied by the steps of gradient accumulation",
        "huggingface/transformers#35207", "2024-12-11",
    ),
    KnownFault(
        "datasets", (0,), (2, 14, 6), "load_dataset refuses local files with this fsspec", "huggingface/datasets#6352", "2023-10-25",
        beside=("fsspec", (2023, 10)),
    ),
    KnownFault(
        "torch", (0,), (2, 3), "built for NumPy 1: arrays cannot be passed, or the process crashes", "TorchIO-project/torchio#1183",
        "2024-06-28", beside=("numpy", (2,)),
    ),
    KnownFault(
        "librosa", (0,), (0, 9), "its import fails with this NumPy", "librosa/librosa#1752", "2023-09-19", beside=("numpy", (1, 24)),
    ),
)  # fmt: skip


def version_of(text: str) -> Version:
    """The numbers that a version begins with: 2.6.0+cu124 is (2, 6, 0). A pre-release counts as its release."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, found[1].split("."))) if found else ()


def known_faults(installed: Mapping[str, str]) -> list[KnownFault]:
    """The faults of what is installed. installed: package -> version."""
    versions = {package: version_of(text) for package, text in installed.items()}
    return [
        fault
        for fault in KNOWN_FAULTS
        if (mine := versions.get(fault.package))
        and fault.first <= mine < fault.before
        and (fault.beside is None or versions.get(fault.beside[0], ()) >= fault.beside[1])
    ]
