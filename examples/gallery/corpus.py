"""Real text without a download: what ships with Python, cut into byte windows.

The base learns English reference prose (`pydoc_data.topics`); the fine-tune is on something else, Python source
code of the standard library. A token is a byte, so the vocabulary has 256 entries.
"""

import hashlib
import random
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset

VOCABULARY = 256
WINDOW = 128  # bytes in one sequence
EVAL_EVERY = 10  # each tenth window is held out, so both splits come from the same text
EVAL_WINDOWS = 96
IGNORED = -100  # the label that the loss skips

SOURCE_MODULES = ("argparse.py", "ast.py", "inspect.py", "pdb.py", "subprocess.py", "tarfile.py", "typing.py")


def prose() -> bytes:
    """The text of `help("topics")`: the Python language reference, about 465 kB."""
    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def source_code() -> bytes:
    """Python source of a few large modules of the standard library, about 650 kB."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return b"\n\n".join((library / name).read_bytes() for name in SOURCE_MODULES)


def digest(text: bytes) -> str:
    """SHA-256 of the text, because another Python release ships another text."""
    return hashlib.sha256(text).hexdigest()


def split(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """Cut into non-overlapping windows; returns (training windows, held-out windows)."""
    windows = [text[i : i + WINDOW] for i in range(0, len(text) - WINDOW + 1, WINDOW)]
    train = [window for i, window in enumerate(windows) if i % EVAL_EVERY]
    return train, spread(windows[::EVAL_EVERY], EVAL_WINDOWS)


def spread(windows: list[bytes], count: int) -> list[bytes]:
    """`count` windows at even distances, so that a small set is not only the first file's header."""
    if count > len(windows):
        raise ValueError(f"the text has {len(windows)} windows, {count} are needed")
    return [windows[i * len(windows) // count] for i in range(count)]


class Windows(Dataset[dict[str, torch.Tensor]]):
    """Sequences of shape (WINDOW,) with labels; the two data faults of the gallery live here."""

    def __init__(self, windows: list[bytes], shuffle_seed: int | None = None, masked: range = range(0)) -> None:
        """`masked` counts served sequences, not indices: the sampler decides which ones a batch holds."""
        self.windows = windows
        self.shuffle_seed = shuffle_seed
        self.masked = masked
        self.served = 0

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = list(self.windows[index])
        labels = self._labels(tokens, index)
        self.served += 1
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(labels)}

    def _labels(self, tokens: list[int], index: int) -> list[int]:
        if self.served in self.masked:
            return [IGNORED] * len(tokens)
        if self.shuffle_seed is not None:
            # Seeded by sequence: a wrong label file is wrong in the same way in every epoch.
            return random.Random(f"{self.shuffle_seed}/{index}").sample(tokens, len(tokens))
        return tokens
