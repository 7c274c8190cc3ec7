"""What must be the same for a step to come out bit for bit the same: build, threads, processor, settings, code."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

from trainproof.record.framework import torch

#: what differs without changing a bit; told, not compared
HARMLESS = frozenset({"host", "deterministic"})


#: variables of the environment that change which kernels run
VARIABLES = (
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ATEN_CPU_CAPABILITY",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
)


def fingerprint(source: str | None = None, optimizer: Any = None, model: Any = None) -> dict[str, Any]:
    """The fingerprint of this process. source: the file of the training code, whose hash is part of it. model: whether any of its modules
    is compiled is part of it too."""
    t = torch()
    found: dict[str, Any] = {
        "torch": str(t.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_capability": t.backends.cpu.get_cpu_capability(),
        "threads": t.get_num_threads(),
        "mkldnn": bool(t.backends.mkldnn.enabled),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "compile": _compiled(model),
        "matmul_precision": t.get_float32_matmul_precision(),
        "default_dtype": str(t.get_default_dtype()),
        "deterministic": bool(t.are_deterministic_algorithms_enabled()),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "host": platform.node(),
    }
    if t.cuda.is_available():
        found["devices"] = [t.cuda.get_device_name(i) for i in range(t.cuda.device_count())]
    if optimizer is not None:
        groups = getattr(optimizer, "param_groups", [])
        found["optimizer"] = [
            type(optimizer).__qualname__,
            *({k: group.get(k) for k in ("fused", "foreach")} for group in groups),
        ]
    if source is not None and Path(source).is_file():
        found["code"] = code_of(source)
    return found


def code_of(source: str | Path) -> str:
    """64 bits of SHA-256 of the training code."""
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16]


def _compiled(model: Any) -> bool:
    """Whether torch.compile was asked for on the model or a module in it."""
    modules = model.modules() if hasattr(model, "modules") else ()
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None for module in modules
    )


def differences(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs and may change bits, each as a phrase."""
    names = [name for name in {**recorded, **now} if name not in HARMLESS]
    return [
        f"{name} was {recorded.get(name)}, is {now.get(name)}" for name in names if recorded.get(name) != now.get(name)
    ]
