"""The one table from every logger's metric names to ours, and what a name says of a metric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainproof.errors import UsageError

#: canonical name -> the names it is logged under, best first; compared after `plain`
ALIASES: dict[str, tuple[str, ...]] = {
    "loss": (
        "loss",
        "train/loss",
        "train_loss",
        "train_loss_step",
        "train/loss_step",
        "training_loss",
        "batch_loss",
        "total_loss",
        "train/total_loss",
        "lm_loss",
        "reduced_train_loss",
        "train/crossentropyloss",
        "trainiterstats/loss",
        "loss/loss",
        "loss/train",
        "loss/total",
        "loss/total_loss",
        "train_loss_epoch",
        "train/loss_epoch",
        "epoch_loss",
        "trl",
        "loss_vae",
    ),
    "eval/loss": (
        "eval_loss",
        "eval/loss",
        "val_loss",
        "val/loss",
        "valid_loss",
        "valid/loss",
        "validation_loss",
        "validation/loss",
        "dev_loss",
        "dev/loss",
        "evalstats/avg_loss",
        "loss/val",
        "loss/validation",
        "loss/eval",
        "val/loss_epoch",
        "val_loss_epoch",
        "epoch_val_loss",
        "validation/ctc_loss",
        "tel",
        "test_loss",
        "test/loss",
    ),
    "lr": (
        "lr",
        "learning_rate",
        "train/lr",
        "train/learning_rate",
        "train_lr",
        "current_lr",
        "trainiterstats/current_lr",
        "lr/pg0",
        "lr_0",
        "x/lr0",
        "current_lr_0",
        "optim/lr",
        "lr_adamw",
        "lr_adam",
        "lr_sgd",
        "lr_adamw/pg1",
        "lr_adam/pg1",
        "lr_sgd/pg1",
    ),
    "grad_norm": (
        "grad_norm",
        "gnorm",
        "train/grad_norm",
        "gradient_norm",
        "global_grad_norm",
        "total_grad_norm",
        "grad_2.0_norm_total",
        "optim/total_grad_norm",
        "trainiterstats/grad_norm",
        "norm",
        "grad",
    ),
    "loss_scale": ("loss_scale", "amp_scaler", "train/loss_scale", "grad_scale", "scaler"),
    "skipped_steps": ("skipped_steps", "number_of_skipped_iterations", "skipped_iterations"),
    "step_time": (
        "step_time",
        "time_per_iteration",
        "elapsed_time_per_iteration",
        "iter_time",
        "train/step_time",
        "ms/batch",
    ),
    "data_time": ("data_time", "loader_time", "data_loading_time"),
    "throughput": (
        "throughput",
        "tps",
        "wps",
        "tokens_per_sec",
        "tokens_per_second",
        "train_samples_per_second",
        "samples_per_second",
        "time/fps",
    ),
    "tokens": ("tokens", "num_tokens", "total_tokens", "consumed_tokens", "num_input_tokens_seen"),
    "memory": ("memory", "gpu_memory", "max_memory", "peak_memory"),
    "epoch": ("epoch", "epochs", "train/epoch"),
    "time": ("time", "wall_time", "elapsed", "total_duration", "time/time_elapsed", "timeelapsed", "_runtime"),
    "reward": (
        "reward",
        "rewards/mean",
        "train/reward",
        "rollout/ep_rew_mean",
        "eprewmean",
        "episode_reward",
        "train/return",
        "return",
        "episode_return",
        "mean_reward",
        "ep_rew_mean",
    ),
    "reward_std": ("reward_std", "train/reward_std"),
    "kl": ("kl", "train/kl", "objective/kl", "train/approx_kl", "approx_kl"),
    "entropy": ("entropy", "train/entropy", "objective/entropy"),
    "clip_ratio": ("clip_ratio", "completions/clipped_ratio", "clip_ratio/region_mean", "train/clip_fraction"),
    "rewards/chosen": ("rewards/chosen", "train/rewards/chosen"),
    "rewards/rejected": ("rewards/rejected", "train/rewards/rejected"),
    "rewards/margins": ("rewards/margins", "train/rewards/margins"),
    "loss/discriminator": (
        "loss_disc",
        "d_loss",
        "disc_loss",
        "loss_d",
        "loss/d/loss",
        "loss/d/loss/mean",
        "discriminator_loss",
    ),
    "loss/generator": ("loss_gen", "g_loss", "gen_loss", "loss_g", "loss/g/loss", "loss/g/loss/mean", "generator_loss"),
}

#: names that number a record, best first; compared after `plain`
STEP_NAMES = (
    "step",
    "global_step",
    "_step",
    "current_steps",
    "current_step",
    "iteration",
    "iter",
    "iterations",
    "num_updates",
    "train_step",
    "trainer/global_step",
    "time/total_timesteps",
    "timestepssofar",
    "total_timesteps",
    "episode",
)
EPOCH_NAMES = ("epoch", "epochs")

#: words that say which way an evaluation metric improves
_HIGHER = "accuracy acc bleu rouge f1 map auc auroc ssim precision recall reward ndcg r2 iou miou dice psnr score top return chrf comet".split()
_LOWER = "loss wer cer ter ppl perplexity mse rmse mae fid bpb bpc bpd nll error err eer mcd kid".split()
_METRIC_WORDS = frozenset(
    [*_HIGHER, *_LOWER, "lr", "learning", "grad", "gnorm", "norm", "kl", "entropy", "elbo", "val", "train"]
)

_EVAL_PREFIX = re.compile(r"(?:eval|val|valid|validation|dev|evalstats|metrics)[/_](?:avg_)?(?P<rest>.+)\Z")
_TEST_PREFIX = re.compile(r"test[/_](?P<rest>.+)\Z")
_PART = re.compile(
    r"(?:train[/_])?(?:loss[/_](?P<after>[a-z0-9_.]+?)|(?P<before>[a-z0-9_.]+?)_loss)(?P<grain>_step|_epoch)?\Z"
)
_LR_GROUP = re.compile(
    r"(?:lr|x/lr|current_lr|lr_adamw|lr_adam|lr_sgd|learning_rate)[/_]?(?:pg)?(?P<group>\d+|[a-z][a-z0-9_]*)\Z"
)
_NOT_PARTS = ("scale", "scaler", "scaling", "epoch", "step")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


def plain(name: str) -> str:
    """A name as the table compares it: lower case, spaces and dashes as underscores, no surrounding blanks, units or brackets."""
    name = name.strip().strip("\"'").lower()
    name = re.sub(r"\s*\((?:ms|s|sec|gb|mb|gib|b|m)\)\Z", "", name)
    return re.sub(r"[\s\-]+", "_", name)


def step_name(names: Iterable[str]) -> str | None:
    """The name that numbers the records: step-like if there is one, else an epoch; None when there is neither."""
    by_plain = {plain(name): name for name in reversed(list(names))}
    return next((by_plain[known] for known in (*STEP_NAMES, *EPOCH_NAMES) if known in by_plain), None)


def looks_like_metric(name: str) -> bool:
    """Whether the name is one that training logs use (for sniffing)."""
    words = re.split(r"[^a-z0-9]+", plain(_CAMEL.sub("_", name)))
    return any(
        word in _METRIC_WORDS or word.rstrip("s") in _METRIC_WORDS or word.startswith("reward") for word in words
    )


def higher_is_better(name: str) -> bool | None:
    """Which way a metric improves, by well-known names; None when the name does not say."""
    words = [word for word in re.split(r"[^a-z0-9]+", plain(_CAMEL.sub("_", name))) if word]
    for word in reversed(words):
        base = re.sub(r"\d+\Z", "", word)
        if word in _LOWER or base in _LOWER:
            return False
        if word in _HIGHER or base in _HIGHER or word.startswith("rouge"):
            return True
    return None


def resolve(names: Iterable[str], mapping: Mapping[str, str] | None = None) -> dict[str, str]:
    """Logger's name -> canonical name, one to one, for all the metrics of one log at once.

    `mapping` is the user's, ours -> theirs (`--map loss=my_loss`), and wins. Of several names for one metric the best known wins; the
    others keep their own. Raises UsageError when the user names a metric that the log has not.
    """
    raw = list(names)
    resolved: dict[str, str] = {}
    for ours, theirs in (mapping or {}).items():
        if theirs not in raw:
            raise UsageError(f"--map {ours}={theirs}: the log has no {theirs!r}; it has {', '.join(raw[:20])}")
        resolved[theirs] = ours
    taken = set(resolved.values())
    by_plain: dict[str, str] = {}
    for name in raw:
        if name not in resolved:
            by_plain.setdefault(plain(name), name)
    for canonical, aliases in ALIASES.items():
        winner = next(
            (by_plain[alias] for alias in aliases if alias in by_plain and by_plain[alias] not in resolved), None
        )
        if winner is not None and canonical not in taken:
            resolved[winner] = canonical
            taken.add(canonical)
    for name in raw:
        if name not in resolved:
            ours = _by_pattern(plain(name)) or name
            resolved[name] = ours if ours not in taken else _free(name, taken)
            taken.add(resolved[name])
    return {name: resolved[name] for name in raw}


def _free(name: str, taken: set[str]) -> str:
    """`name`, or the first of name~2, name~3 ... that no other metric has."""
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}~{n}"
    return candidate


def _by_pattern(name: str) -> str | None:
    """The canonical name of a metric that the table does not list: evaluation and test metrics, loss parts, learning-rate groups.

    None for any other metric, which keeps its own name.
    """
    if match := _EVAL_PREFIX.match(name):
        rest = match["rest"]
        part = _part_of(rest)
        return f"eval/loss/{part}" if part else f"eval/{rest}"
    if match := _TEST_PREFIX.match(name):
        return f"test/{match['rest']}"
    if match := _LR_GROUP.match(name):
        return f"lr/{match['group']}"
    part = _part_of(name)
    return f"loss/{part}" if part else None


def _part_of(name: str) -> str | None:
    match = _PART.match(name)
    if match is None or name.endswith("_unscaled"):
        return None
    part = match["after"] or match["before"]
    if part in _NOT_PARTS or match["grain"] == "_epoch" or part.startswith(("trainepochstats", "policy_gradient")):
        return None
    return str(part)
