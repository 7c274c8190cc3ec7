"""What a run declared about itself: planned steps, vocabulary, accumulation, warm-up, clipping, schedule and the like.

A fact has one canonical name (the keys of FACT_NAMES), whatever it was called where it was declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from trainproof.errors import UsageError

FactValue = str | int | float | bool
#: characters of a text that can be a setting
MOST_TEXT = 200

#: canonical name -> other names under which configs and trainers declare it (compared in lower case)
FACT_NAMES: dict[str, tuple[str, ...]] = {
    "total_steps": (
        "max_steps",
        "train_steps",
        "total_train_steps",
        "num_training_steps",
        "max_iters",
        "max_iter",
        "train_iters",
    ),
    "epochs": ("num_train_epochs", "num_epochs", "max_epochs", "total_epochs"),
    "vocab_size": ("n_vocab", "vocabulary_size", "padded_vocab_size"),
    "num_classes": ("num_labels", "n_classes", "nc"),
    "accumulation": (
        "gradient_accumulation_steps",
        "accumulate_grad_batches",
        "grad_accum_steps",
        "grad_accum",
        "accum_iter",
    ),
    "world_size": ("num_processes", "num_gpus", "n_gpu", "data_parallel_size"),
    "batch_size": ("per_device_train_batch_size", "train_batch_size", "micro_batch_size"),
    "max_grad_norm": ("grad_clip", "gradient_clip_val", "clip_grad", "clip_grad_norm", "clip"),
    "warmup_steps": ("num_warmup_steps", "warmup_iters", "lr_warmup_iters", "warmup_updates"),
    "warmup_ratio": ("warmup_fraction", "lr_warmup_fraction"),
    "schedule": ("lr_scheduler_type", "lr_scheduler", "scheduler", "lr_decay_style"),
    "learning_rate": ("base_lr", "max_lr", "peak_lr", "lr0"),
    "pretrained": ("from_pretrained", "finetune", "fine_tune"),
    "objective": ("task_type", "objective_kind"),
    "preference_loss": ("loss_type",),
    "precision": ("torch_dtype", "mixed_precision", "dtype", "amp_dtype"),
    "logging_steps": ("log_every_n_steps", "log_interval", "print_step"),
    "save_steps": ("save_interval", "save_step", "save_every"),
    "eval_steps": ("eval_interval", "eval_every"),
    "steps_per_epoch": (),
    "best_metric_name": ("metric_for_best_model", "monitor"),
    "greater_is_better": (),
    "seed": ("random_seed", "manual_seed"),
    "architecture": ("model_type",),
    "optimizer": ("optim",),
    "weight_decay": (),
    "memory_limit": (),
    "nan_filter": ("logging_nan_inf_filter",),
    "status": (),
    "losses_in": (),  # the file beside the log that has the losses which this log leaves out
}

_CANONICAL = {alias: name for name, aliases in FACT_NAMES.items() for alias in (name, *aliases)}


def canonical_fact(name: str) -> str | None:
    """The canonical name of a declared key, or None when it is not a fact we use."""
    return _CANONICAL.get(name.strip().lower().replace("-", "_"))


def parse_scalar(text: str) -> FactValue:
    """`text` as bool, int, float or str, as a YAML 1.2 scalar reads; never raises."""
    text = text.strip().strip("'\"")
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_setting(value: object) -> TypeGuard[FactValue]:
    """Whether a report can carry the value: a bool, a finite number that fits 64 bits, or a short text."""
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    return isinstance(value, (bool, int, float)) and abs(value) < 2**63


class Facts(Mapping[str, FactValue]):
    """Declared facts by canonical name; each remembers where it was declared. The first declaration wins."""

    def __init__(self, values: Mapping[str, FactValue] | None = None, where: str = "given") -> None:
        self._values: dict[str, FactValue] = {}
        self._where: dict[str, str] = {}
        for name, value in (values or {}).items():
            self.declare(name, value, where)

    def declare(self, name: str, value: object, where: str) -> None:
        """Note a fact under whichever name it has; values that no setting has and unknown names are passed over."""
        canonical = canonical_fact(name)
        if canonical is None or canonical in self._values:
            return
        value = parse_scalar(value) if isinstance(value, str) else value
        if is_setting(value):
            self._values[canonical] = value
            self._where[canonical] = where

    def where(self, name: str) -> str:
        return self._where[name]

    def number(self, name: str) -> float | None:
        """The fact as a positive number, or None when it is not one (HF writes max_steps = -1 for "unset")."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if 0 < value < float("inf") else None

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None else str(value).lower()

    def merged(self, weaker: Mapping[str, FactValue], where: str | None = None) -> Facts:
        """These facts and, where they are silent, the weaker ones."""
        merged = Facts()
        merged._values = {**self._values}
        merged._where = {**self._where}
        for name, value in weaker.items():
            merged.declare(name, value, where or (weaker.where(name) if isinstance(weaker, Facts) else "given"))
        return merged

    def __getitem__(self, name: str) -> FactValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def parse_fact_options(options: Sequence[str]) -> Facts:
    """Facts from `--fact KEY=VALUE` options. Raises UsageError for a malformed option or an unknown key."""
    facts = Facts()
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--fact {option!r}: expected KEY=VALUE, for example --fact vocab_size=50257")
        if canonical_fact(name) is None:
            raise UsageError(f"--fact {name!r} is not a known fact; known: {', '.join(FACT_NAMES)}")
        facts.declare(name, value, "--fact")
    return facts
