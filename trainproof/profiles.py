"""Profiles: small, named sets of threshold overrides for one kind of training. The default needs none of them.

An override is named in the report, whether it comes from a profile or was given by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainproof.errors import UsageError
from trainproof.thresholds import Thresholds

PROFILES: dict[str, dict[str, float]] = {
    # A from-scratch language model learns much: public ones lose 24 % and more after the warm-up. Spikes of large models take
    # 2,000 steps to heal (a public run of 104 billion parameters). A third of the machine's time waiting for data is worth a warning.
    "pretrain": {"loss.never_drop": 0.20, "loss.unrecovered_fail_records": 2000, "throughput.data_warn": 0.3},
    # Adapters on a strong base learn little: healthy public fine-tunes end 10 to 17 % below their start.
    "finetune": {"loss.never_drop": 0.05},
    # Preference losses start at ln 2 and are healthy at 0.6.
    "preference": {"loss.never_drop": 0.05},
    # Answers and episodes grow longer: a public PPO run slowed down 2.1 x while its reward rose.
    "rl": {"throughput.creep_warn": 2.5, "throughput.drop_warn": 3.0},
    # Augmentation, label smoothing and regularisation put the training loss above the evaluation loss: 6.2 x in public ImageNet runs.
    "vision": {"evaluation.scale_ratio": 8.0},
    # The same for augmented speech (4.1 x), and fine-tunes of speech models end 14 to 17 % below their start.
    "tts": {"evaluation.scale_ratio": 8.0, "loss.never_drop": 0.05},
}


def thresholds_for(profile: str | None, overrides: Mapping[str, float] | None = None) -> Thresholds:
    """The thresholds of a profile (None: the defaults) with overrides on top. Raises UsageError for an unknown profile or threshold."""
    if profile is not None and profile not in PROFILES:
        raise UsageError(f"unknown profile {profile!r}; known: {', '.join(PROFILES)}")
    named = PROFILES[profile] if profile else {}
    return Thresholds().with_overrides({**named, **(overrides or {})})
