"""Which kind of objective this is: decided from declared facts, else from the names of the metrics, else unknown.

`lm` and `classification` switch on rules that compare the loss with ln(classes) or with absolute values, so both need good evidence;
`unknown` gets every supervised rule that needs no scale.
"""

from __future__ import annotations

import math
import re

import numpy as np

from trainproof.frame import Frame, Series
from trainproof.names import is_perplexity

OBJECTIVES = ("lm", "classification", "regression", "density", "preference", "rl", "adversarial", "unknown")

#: share of clearly negative loss values from which on the loss is a density's (or a ratio's), not a cross-entropy
NEGATIVE_SHARE = 0.10
#: a value is clearly negative below this times the usual size of the loss
CLEARLY = 0.1

_DECLARED = (
    (re.compile(r"causal|\blm\b|_lm\b|language|seq_?2_?seq|masked"), "lm"),
    (re.compile(r"classif|seq_cls|token_cls"), "classification"),
    (re.compile(r"\b[dik]?po\b|orpo|simpo|\bkto\b|preference|reward_?model"), "preference"),
    (re.compile(r"grpo|ppo|\brl\b|rloo|reinforce"), "rl"),
    (re.compile(r"gan\b|adversarial"), "adversarial"),
    (re.compile(r"regress|diffusion|mse"), "regression"),
    (re.compile(r"density|flow\b|likelihood"), "density"),
)
_PREFERENCE_NAMES = frozenset(
    {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "margin"}
)
_RL_NAMES = frozenset({"reward", "reward_std", "frac_reward_zero_std", "clip_ratio", "truncated_ratio"})
_RL_TERM = re.compile(r".*(?:policy_gradient|policy_loss|loss/policy(?:_avg)?\Z|pol_surr|ep_rew_mean)")
_GENERATOR = frozenset({"loss/generator", "loss/g_a", "loss/g_gan"})
_DISCRIMINATOR = frozenset(
    {"loss/discriminator", "loss/d_a", "loss/d_real", "loss/scores/fake", "loss/scores/fake/mean"}
)
#: names that only language models log
_LM_NAME = re.compile(
    r"(?:.*[/_])?(?:bpb|bits_per_byte|mean_token_accuracy|token_accuracy|num_tokens|lm[_ -]?loss|reduced_train_loss)",
    re.I,
)
_ACCURACY = re.compile(
    r"(?:(?:train|eval|test)/)?(?:train_)?(?:accuracy|acc|top_?[15](?:_acc(?:uracy)?)?|error_rate)", re.I
)
#: metrics of tasks whose accuracy, if they log one, is not that of one label an example
_OTHER_TASK = re.compile(r".*(?:bleu|rouge|wer|cer|map\d*|mean_average_precision|iou|percentage)(?:\b|_|\Z)", re.I)
#: objectives that metrics' names settle, whatever a model's config says of its architecture
REWARDED = ("preference", "rl")
#: where the user says what a fact is
GIVEN = ("given", "--fact")
#: a perplexity belongs to the loss when it is exp(loss) within this factor, in the median record
PERPLEXITY_FACTOR = 1.1
PERPLEXITY_RECORDS = 64


def objective_of(frame: Frame) -> str:
    """One of OBJECTIVES."""
    declared, named = _declared(frame), _from_names(frame)
    if named in REWARDED and declared in ("lm", "classification") and frame.facts.where("objective") not in GIVEN:
        return named or "unknown"  # the architecture is that of a language model, and it is trained by rewards
    return declared or named or ("density" if _often_negative(frame) else "unknown")


def _declared(frame: Frame) -> str | None:
    declared = frame.facts.text("objective")
    if not declared or declared in OBJECTIVES:
        return declared or None
    return next((objective for pattern, objective in _DECLARED if pattern.search(declared)), None)


def _from_names(frame: Frame) -> str | None:
    """What the names of the metrics say; None when they leave it open."""
    own = {theirs.strip().lower() for ours, theirs in frame.original_names.items() if ours in frame}
    names = {name.lower() for name in frame} | own
    if names & _PREFERENCE_NAMES:
        return "preference"
    if names & _RL_NAMES or any(map(_RL_TERM.match, names)):
        return "rl"
    if names & _GENERATOR and names & _DISCRIMINATOR:
        return "adversarial"
    if _is_lm(frame, names):
        return "lm"
    return "classification" if _is_classification(frame, names) else None


def _is_lm(frame: Frame, names: set[str]) -> bool:
    """Whether the loss is the mean cross-entropy of tokens, in nats."""
    if _is_perplexity_of(frame):
        return True
    if any(map(is_perplexity, names)):
        return False  # the loss is in bits, a sum, or has other terms
    if any(map(_LM_NAME.fullmatch, names)):
        return True
    return (
        "vocab_size" in frame.facts and "num_classes" not in frame.facts and not (_has_parts(frame) or _labels(names))
    )


def _is_perplexity_of(frame: Frame) -> bool:
    """Whether a perplexity that is logged is exp(loss), of training or of evaluation."""
    for name in frame:
        if is_perplexity(name):
            loss = frame.get("eval/loss" if name.startswith("eval/") else "loss")
            if loss is not None and _agree(loss, frame[name]):
                return True
    return False


def _agree(loss: Series, perplexity: Series) -> bool:
    mine, others = loss.align(perplexity)
    x, y = loss.value[mine[:PERPLEXITY_RECORDS]], perplexity.value[others[:PERPLEXITY_RECORDS]]
    both = np.isfinite(x) & np.isfinite(y) & (y > 0)
    if not both.any():
        return False
    off = np.abs(np.log(y[both]) - x[both])
    return float(np.partition(off, len(off) // 2)[len(off) // 2]) <= math.log(PERPLEXITY_FACTOR)


def _is_classification(frame: Frame, names: set[str]) -> bool:
    """Whether the loss is the mean cross-entropy of one label an example: it has no other parts and is not negative."""
    declared = "num_classes" in frame.facts and "vocab_size" not in frame.facts
    if _has_parts(frame) or not (declared or _labels(names)) or any(map(_OTHER_TASK.match, names)):
        return False
    return "loss" not in frame or not bool((frame["loss"].finite.value < 0).any())


def _labels(names: set[str]) -> bool:
    return any(map(_ACCURACY.fullmatch, names))


def _has_parts(frame: Frame) -> bool:
    return any(name.startswith("loss/") for name in frame)


def _often_negative(frame: Frame) -> bool:
    loss = frame["loss"].finite.value if "loss" in frame else np.zeros(0)
    if not len(loss) or loss.min() >= 0:
        return False
    usual = float(np.partition(np.abs(loss), len(loss) // 2)[len(loss) // 2])
    return float((loss < -CLEARLY * usual).mean()) >= NEGATIVE_SHARE
