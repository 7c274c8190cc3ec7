"""Which kind of objective this is: decided from declared facts, else from the names of the metrics, else unknown.

`lm` and `classification` switch on rules that compare the loss with ln(classes) or with absolute values, so both need good evidence;
`unknown` gets every supervised rule that needs no scale.
"""

from __future__ import annotations

import re

import numpy as np

from trainproof.frame import Frame

OBJECTIVES = ("lm", "classification", "regression", "density", "preference", "rl", "adversarial", "unknown")

#: share of clearly negative loss values from which on the loss is a density's (or a ratio's), not a cross-entropy
NEGATIVE_SHARE = 0.10

_DECLARED = (
    (re.compile(r"causal|lm\b|language|seq_?2_?seq|masked"), "lm"),
    (re.compile(r"classif|seq_cls|token_cls"), "classification"),
    (re.compile(r"dpo|orpo|ipo|kto|preference"), "preference"),
    (re.compile(r"grpo|ppo|\brl|rloo|reinforce"), "rl"),
    (re.compile(r"gan|adversarial"), "adversarial"),
    (re.compile(r"regress|diffusion|mse"), "regression"),
    (re.compile(r"density|flow|likelihood"), "density"),
)
_RL_NAMES = frozenset(
    {
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "train/policy_gradient_loss",
        "loss/policy_gradient",
        "policy_loss",
    }
)
_PREFERENCE_NAMES = frozenset({"rewards/chosen", "rewards/rejected", "rewards/margins"})
_LM_NAMES = re.compile(
    r"(?:.*[/_])?(?:ppl|perplexity|bpb|bits_per_byte|mean_token_accuracy|token_accuracy|num_tokens)\Z"
)
_ACCURACY = re.compile(r"(?:.*[/_])?(?:accuracy|acc|top_?[15](?:_acc(?:uracy)?)?|error_rate)\Z")
_LM_ORIGINALS = re.compile(r"(?:lm[_ -]loss|reduced_train_loss|num_tokens|.*ppl)\Z", re.IGNORECASE)


def objective_of(frame: Frame) -> str:
    """One of OBJECTIVES."""
    declared = frame.facts.text("objective")
    if declared:
        if declared in OBJECTIVES:
            return declared
        for pattern, objective in _DECLARED:
            if pattern.search(declared):
                return objective
    names = set(frame)
    if names & _PREFERENCE_NAMES:
        return "preference"
    if names & _RL_NAMES:
        return "rl"
    if {"loss/discriminator", "loss/generator"} <= names or _looks_adversarial(names):
        return "adversarial"
    if _mostly_negative(frame):
        return "density"
    if "vocab_size" in frame.facts or any(map(_LM_NAMES.match, names)) or _declares_lm(frame):
        return "lm"
    if "num_classes" in frame.facts or any(map(_ACCURACY.match, names)):
        return "classification" if _non_negative(frame) else "unknown"
    return "unknown"


def _looks_adversarial(names: set[str]) -> bool:
    """CycleGAN and its kind: discriminator and generator terms by letter."""
    lowered = {name.lower() for name in names}
    return {"d_a", "g_a"} <= lowered or {"loss/scores/fake/mean", "loss/scores/real/mean"} <= lowered


def _declares_lm(frame: Frame) -> bool:
    return any(_LM_ORIGINALS.match(name) for name in frame.original_names.values())


def _mostly_negative(frame: Frame) -> bool:
    if "loss" not in frame:
        return False
    loss = frame["loss"].finite.value
    if not len(loss):
        return False
    with np.errstate(over="ignore"):  # the middle of two numbers near the largest float
        scale = float(np.median(np.abs(loss)))
    return bool(scale > 0 and (loss < -0.1 * scale).mean() >= NEGATIVE_SHARE)


def _non_negative(frame: Frame) -> bool:
    return "loss" not in frame or not (frame["loss"].finite.value < 0).any()
