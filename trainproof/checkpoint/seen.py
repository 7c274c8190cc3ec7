"""What the rules look at: a checkpoint with the scan of its bytes, and beside it, if there is one, an older one of the same run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from trainproof.checkpoint.contents import Checked, Checkpoint, Tensor
from trainproof.checkpoint.optimizers import Optimizer, optimizers, scheduler_step
from trainproof.checkpoint.scan import FLOATING, Scan, same_bytes, scan
from trainproof.verdict import Evidence

#: tensors of a model that no optimizer moves, by the ends of their names
BUFFER = re.compile(
    r"(^|.*[._])(inv_freq|position_ids|masked_bias|attn\.(bias|mask)|causal_mask|running_(mean|var)|num_batches_tracked|"
    r"relative_position_index|cos_cached|sin_cached|pe|logit_bias|rotary\w*)(_buffer)?"
)
#: tensors that start at zero, and stay there in a checkpoint of the first step
ZERO_AT_START = re.compile(
    r".*(lora_B|lora_up|lora_magnitude|bias|beta|zero|adaln|modulation|gate|gamma|alpha|mask|running_mean|offset|shift|pos_embed).*",
    re.I,
)
LORA_B = re.compile(r".*(lora_B|lora_up|lora\.up)\b.*")


class Seen:
    """A checkpoint and what was read of it. `frozen` are patterns of names that the user says are frozen; `ordinal` is a tensor's number
    in the checkpoint, from 1."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        older: Checkpoint | None = None,
        *,
        frozen: Sequence[str] = (),
        verify: bool = False,
    ) -> None:
        self.checkpoint, self.older, self.verify = checkpoint, older, verify
        self._frozen = tuple(frozen)
        self.scans: list[Scan]
        self.corrupt: list[Checked]
        self.scans, self.corrupt = scan(checkpoint, verify)

    @property
    def step(self) -> int:
        """The step of the checkpoint, else of its optimizer; 0 where neither tells one."""
        return self.known_step or 0

    @cached_property
    def known_step(self) -> int | None:
        return _step(self.checkpoint, self.optimizers)

    @cached_property
    def older_step(self) -> int | None:
        return None if self.older is None else _step(self.older, optimizers(self.older))

    @cached_property
    def optimizers(self) -> list[Optimizer]:
        return optimizers(self.checkpoint)

    @cached_property
    def scheduler_step(self) -> int | None:
        return scheduler_step(self.checkpoint)

    def scanned(self, role: str = "") -> list[tuple[int, Tensor, Scan]]:
        """(ordinal, tensor, scan) of every tensor, or of those of one part."""
        tensors = self.checkpoint.tensors
        return [
            (i, tensor, seen)
            for i, (tensor, seen) in enumerate(zip(tensors, self.scans, strict=True), 1)
            if not role or tensor.role == role
        ]

    def is_frozen(self, name: str) -> bool:
        """Whether the user said so."""
        return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*{pattern}*") for pattern in self._frozen)

    @cached_property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(tensor, the same of the older checkpoint): parameters of the model with the same name, dtype and shape in both."""
        if self.older is None:
            return []
        others = {tensor.name: tensor for tensor in self.older.of("model")}
        return [
            (tensor, others[tensor.name])
            for tensor in parameters(self.checkpoint)
            if tensor.name in others
            and (tensor.dtype, tensor.shape) == (others[tensor.name].dtype, others[tensor.name].shape)
        ]

    @cached_property
    def unchanged(self) -> list[Tensor]:
        """The parameters whose bytes are those of the older checkpoint."""
        same = same_bytes([a for a, _ in self.pairs], [b for _, b in self.pairs])
        return [pair[0] for pair, is_same in zip(self.pairs, same, strict=True) if is_same]

    def evidence(self, ordinal: int, tensor: Tensor, value: float) -> Evidence:
        return Evidence(tensor.name, self.step, value, ordinal)

    def cite(self, tensors: Sequence[Tensor], value: float) -> tuple[Evidence, ...]:
        """The first few of the tensors, each with `value`."""
        ordinals = {tensor.name: i for i, tensor in enumerate(self.checkpoint.tensors, 1)}
        return tuple(self.evidence(ordinals[tensor.name], tensor, value) for tensor in tensors[:8])


def parameters(checkpoint: Checkpoint) -> list[Tensor]:
    """The floating tensors of the model that an optimizer may move, each storage once: tied weights have two names."""
    found: dict[tuple[str, int], Tensor] = {}
    for tensor in checkpoint.of("model"):
        if tensor.dtype in FLOATING and tensor.elements and not BUFFER.fullmatch(tensor.name):
            found.setdefault((tensor.path, tensor.offset), tensor)
    return list(found.values())


def _step(checkpoint: Checkpoint, found: Sequence[Optimizer]) -> int | None:
    if checkpoint.step is not None:
        return checkpoint.step
    return max((one.step for one in found if one.step is not None), default=None)
