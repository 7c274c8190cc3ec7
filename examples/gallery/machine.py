"""Plain PyTorch loops whose machine is at fault: a loader that searches, hooks that pile up, a profiler left on, a memory limit in sight.

Times are seconds of the processor, of the machine that made the logs. A faulty run changes one argument of its healthy twin.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
import torch
from loops import CONTEXT, Record
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SIZE = 256  # contexts of a batch


class Lines(Dataset[torch.Tensor]):
    """Contexts and the bytes that follow, one a line of a file in hexadecimal, in the order of the file."""

    def __init__(self, path: Path, indexed: bool) -> None:
        """Indexed, a line is found by its offset; otherwise the file is read from its beginning for each batch."""
        self.path, self.indexed = path, indexed
        self.width = 2 * (CONTEXT + 1) + 1

    def __len__(self) -> int:
        return self.path.stat().st_size // self.width // SIZE

    def __getitem__(self, batch: int) -> torch.Tensor:
        with self.path.open(encoding="ascii") as file:
            if self.indexed:
                file.seek(batch * SIZE * self.width)
            else:
                for _ in range(batch * SIZE):
                    file.readline()
            text = "".join(file.readline() for _ in range(SIZE))
        return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8).long().view(SIZE, CONTEXT + 1)


def written(seed: int, batches: int, path: Path) -> None:
    """Write that many batches of random places of the prose."""
    text, width = corpus.prose(), CONTEXT + 1
    at = torch.randint(0, len(text) - width, (batches * SIZE,), generator=torch.Generator().manual_seed(seed))
    path.write_bytes(b"".join(text[i : i + width].hex().encode() + b"\n" for i in at.tolist()))


def small() -> nn.Sequential:
    """A next-byte model on CONTEXT bytes."""
    return nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(CONTEXT * 16, 256), nn.ReLU(), nn.Linear(256, 256)
    )


def timed(
    seed: int,
    *,
    indexed: bool = True,
    remove_hooks: bool = True,
    evaluated_from: int = 0,
    looks: int = 32,
    steps: int = 240,
) -> Iterator[Record]:
    """Train with a DataLoader and log how long it waits and how long a step takes.

    Hooks note the activations of each step; unless `remove_hooks`, they stay. From step `evaluated_from` on (0: never) each step ends
    with a look at `looks` batches.
    """
    torch.manual_seed(seed)
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noted: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches"
        written(seed, steps, path)
        data = Lines(path, indexed)
        began = time.process_time()
        for step, (batch,) in enumerate(DataLoader(data, batch_size=1, collate_fn=list), 1):
            loaded = time.process_time()
            hooks = [layer.register_forward_hook(lambda *seen: noted.append(seen[2].std().item())) for layer in model]
            loss = functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for hook in hooks if remove_hooks else ():
                hook.remove()
            for at in range(looks if 0 < evaluated_from <= step else 0):
                with torch.no_grad():
                    functional.cross_entropy(model(data[at][:, :-1]), data[at][:, -1])
            now = time.process_time()
            yield {"step": step, "loss": loss.item(), "data_time": loaded - began, "step_time": now - began}
            began = now
