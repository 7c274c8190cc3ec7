"""The one table from every logger's metric names to ours, and what a name says of a metric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from trainproof.errors import UsageError

#: what loggers put before the name of a training metric
TRAIN_PREFIXES = (
    *("", "train/", "train_", "training/", "training_", "trainiterstats/", "optim/", "optimizer/"),
    *("info/learner/default_policy/learner_stats/", "learners/default_policy/"),
)
EVAL_PREFIXES = (
    *("eval_", "eval/", "val_", "val/", "valid_", "valid/", "validation_", "validation/"),
    *("dev_", "dev/", "evalstats/", "evaluation/"),
)
#: canonical name -> the names it is logged under, best first; compared after `plain`, with and without TRAIN_PREFIXES
ALIASES: dict[str, tuple[str, ...]] = {
    "loss": (
        *("loss", "loss_step", "total_loss", "lm_loss", "reduced_train_loss", "crossentropyloss", "batch_loss"),
        *("loss/train", "loss_train", "loss/loss", "loss/total", "loss/total_loss", "loss_total", "trl"),
        *("avg_loss", "mean_loss", "running_loss", "loss_avg", "loss_epoch", "epoch_loss", "loss_vae"),
        *("average_loss", "avg.loss", "step_loss", "avr_loss", "loss/average", "loss/current", "xent", "cross_entropy"),
        *(
            "logloss",
            "binary_logloss",
            "multi_logloss",
            "mlogloss",
            "main/loss",
            "avg_epoch_loss",
            "trainingloss",
            "trainloss",
        ),
    ),
    "lr": ("lr", "learning_rate", "current_lr", "lr_current", "cur_lr", "learnrate"),
    "grad_norm": (
        *("grad_norm", "gnorm", "gradient_norm", "global_grad_norm", "total_grad_norm", "grad_2.0_norm_total"),
        *("grad_norm/total", "actor/grad_norm", "norm", "grad"),
    ),
    "loss_scale": ("loss_scale", "amp_scaler", "grad_scale", "scaler"),
    "skipped_steps": ("skipped_steps", "number_of_skipped_iterations", "skipped_iterations"),
    "step_time": (
        *("step_time", "time_per_iteration", "elapsed_time_per_iteration", "iter_time", "iteration_time"),
        *("ms/batch", "time_per_step", "step_avg", "sec/tick"),
    ),
    "data_time": ("data_time", "loader_time", "data_loading_time", "dataloader_time"),
    "throughput": (
        *("throughput", "tps", "wps", "tokens_per_sec", "tokens_per_second", "tok/s", "samples_per_second"),
        *("samples_per_sec", "steps_per_second", "time/fps", "fps"),
    ),
    "tokens": ("tokens", "num_tokens", "total_tokens", "consumed_tokens", "num_input_tokens_seen"),
    "samples": (
        "samples",
        "consumed_samples",
        "consumed_train_samples",
        "samples_seen",
        "num_samples",
        "examples_seen",
    ),
    "memory": ("memory", "gpu_memory", "gpu_mem", "max_memory", "peak_memory"),
    "epoch": ("epoch", "epochs"),
    "time": (
        *("time", "wall_time", "elapsed", "elapsed_time", "total_duration", "time/time_elapsed", "timeelapsed"),
        *("_runtime", "wall"),
    ),
    "reward": (
        *("reward", "rewards/mean", "rollout/ep_rew_mean", "ep_rew_mean", "eprewmean", "episode_reward"),
        *("return", "episode_return", "mean_reward", "objective/rlhf_reward", "critic/rewards/mean"),
        *("episode_reward_mean",),
        *("env_runners/episode_return_mean", "env_runners/episode_reward_mean", "averageepret", "episodic_return"),
        *("charts/episodic_return", "average_reward", "avg_reward", "total_reward", "ep_reward", "average_return"),
        *("episode/score", "episode_score", "rew", "average_score"),
    ),
    "reward_std": ("reward_std",),
    "kl": ("kl", "objective/kl", "approx_kl", "policy/approxkl_avg", "actor/ppo_kl"),
    "entropy": ("entropy", "objective/entropy", "policy/entropy_avg", "actor/entropy", "actor/entropy_loss"),
    "clip_ratio": ("clip_ratio", "clip_ratio/region_mean", "clip_fraction", "policy/clipfrac_avg", "actor/pg_clipfrac"),
    "truncated_ratio": ("truncated_ratio", "completions/clipped_ratio", "clipped_ratio", "response_length/clip_ratio"),
    "completion_length": ("completion_length", "completions/mean_length", "response_length/mean"),
    "rewards/chosen": ("rewards/chosen",),
    "rewards/rejected": ("rewards/rejected",),
    "rewards/margins": ("rewards/margins",),
    "loss/discriminator": (
        *("loss_disc", "d_loss", "disc_loss", "loss_d", "loss/d", "loss/d/loss", "loss/d/loss/mean"),
        *("discriminator_loss", "loss_discriminator", "loss_d_total"),
    ),
    "loss/generator": (
        *("loss_gen", "g_loss", "gen_loss", "loss_g", "loss/g", "loss/g/loss", "loss/g/loss/mean"),
        *("generator_loss", "loss_generator", "loss_g_total"),
    ),
}
#: losses of held-out data, best first: `<prefix><name>` for each of EVAL_PREFIXES, then these
_EVAL_LOSSES = (
    *("loss", "avg_loss", "total_loss", "loss_epoch", "epoch_loss", "mean_loss", "average_loss", "crossentropyloss"),
)
_OTHER_EVAL_LOSSES = (
    *(
        "loss/val",
        "loss/valid",
        "loss/validation",
        "loss/eval",
        "loss_val",
        "loss_valid",
        "loss_eval",
        "epoch_val_loss",
    ),
    *("validation/main/loss", "validationloss", "validloss", "valloss"),
    *("validation/ctc_loss", "tel", "test_loss", "test/loss", "loss/test", "loss_test"),
)

#: names that number a record, best first; compared after `plain`
STEP_NAMES = (
    *("global_step", "trainer/global_step", "train/global_step", "step", "train_step", "current_steps", "current_step"),
    *("iteration", "iter", "iterations", "num_updates", "steps", "time/total_timesteps", "timestepssofar"),
    *("total_timesteps", "timesteps", "_step", "episode"),
)
EPOCH_NAMES = ("epoch", "epochs")
#: names of a log that an error lists
NAMES_LISTED = 20

_HIGHER = frozenset(
    "accuracy acc bleu rouge f1 map ap auc auroc ssim precision recall reward return ndcg r2 iou miou dice psnr "
    "score top chrf comet".split()
)
_LOWER = frozenset("loss wer cer ter ppl perplexity mse rmse mae fid kid bpb bpc bpd nll error err eer mcd".split())
#: words after which a name speaks of a metric's spread or cost, not of its level
_NO_LEVEL = frozenset("std var num count time runtime second seconds".split())
_TRAINING_WORDS = frozenset("lr learning grad gnorm norm kl entropy elbo val train".split())

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_UNIT = re.compile(r"\s*\((?:ms|s|sec|gb|mb|gib)\)\Z")
_PERPLEXITY = re.compile(r"(?:.*[/_ ])?(?:ppl|perplexity)", re.I)
#: a part of the loss as Spinning Up writes it
_LOSS_OF = re.compile(r"Loss(?P<part>[A-Z]\w{0,30})", re.ASCII)
_TEST = re.compile(r"test[/_]", re.IGNORECASE)
_PART = re.compile(
    r"(?:(?:train|training|trainiterstats)[/_])?"
    r"(?:loss[/_](?P<after>[\w.]+?)|(?P<before>[\w.]+?)[_ ]loss)(?:_step)?\Z",
    re.IGNORECASE | re.ASCII,
)
#: words that make a name with "loss" something other than a part of the loss
_NOT_PARTS = frozenset(
    "scale scaler scaling epoch step unscaled val valid validation eval dev test predict best min max avg mean std ema "
    "running smooth smoothed prev delta train total weight num policy_gradient".split()
)
_LR_GROUP = re.compile(
    r"(?:(?:train|optim|x)/)?(?:current_)?(?:lr|learning_rate)(?:_[a-z]+)?[/_]?(?:pg|group_?|param_group_?)?(?P<number>\d{1,9})\Z",
    re.ASCII,
)
_EXPERT_LOAD = re.compile(
    r"(?:(?:train|moe|router|model)/)*(?:(?:expert_?(?:load|usage|share)|tokens_per_expert|expert_tokens)[/_.](?:expert_?)?|expert_?(?P<before>\d{1,4})[/_.](?:load|usage|share|tokens))(?P<number>\d{1,4})?\Z",
    re.IGNORECASE | re.ASCII,
)
_LR_OPTIMIZER = re.compile(r"lr_(?:adam|adamw|sgd|lion|adafactor|muon|rmsprop|nadam|radam|lamb)\Z")
_LR_NAMED = re.compile(r"(?:lr/|lr_(?=(?:backbone|head|encoder|decoder|gen|disc|[gd]|lora)\Z))(?P<name>[a-z]\w*)\Z")
#: the terms of CycleGAN and pix2pix, which are known by each other
_GAN_TERM = re.compile(r"(?:[dg]|cycle|idt)_[ab]|g_(?:gan|l1)|d_(?:real|fake)")


def plain(name: str) -> str:
    """A name as the table compares it: lower case, underscores for spaces and dashes, no padding, quotes or units."""
    name = _UNIT.sub("", name.strip().strip("\"'").lower())
    return re.sub(r"[\s\-]+", "_", name.strip())


def step_name(names: Iterable[str]) -> str | None:
    """The name that numbers the records: step-like if there is one, else an epoch; None when there is neither."""
    by_plain = {plain(name): name for name in reversed(list(names))}
    return next((by_plain[known] for known in (*STEP_NAMES, *EPOCH_NAMES) if known in by_plain), None)


def looks_like_metric(name: str) -> bool:
    """Whether the name is one that training logs use (for sniffing)."""
    known = _HIGHER | _LOWER | _TRAINING_WORDS
    return any(w in known or w.rstrip("s") in known or w.startswith("reward") for w in _words(name))


def is_perplexity(name: str) -> bool:
    """Whether a metric is exp(loss) by its name."""
    return _PERPLEXITY.fullmatch(name) is not None


def higher_is_better(name: str) -> bool | None:
    """Which way a metric improves, by well-known names; None when the name does not say. The last telling word decides."""
    words = _words(name)
    if _NO_LEVEL.intersection(words):
        return None
    for word in reversed(words):
        forms = {word, re.sub(r"\d+k?\Z", "", word)}  # map50, fid50k
        if forms & _LOWER:
            return False
        if forms & _HIGHER or word.startswith("rouge"):
            return True
    return None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", plain(_CAMEL.sub("_", name))) if word]


def known_tail(name: str) -> str:
    """The longest ending of `name` that the table lists, where a word may begin; `name` itself when there is none.

    For names with a run's name before them and no mark between: "walker_v3_train_return" ends in train_return.
    """
    for match in re.finditer(r"(?<![^_\-./ ])[^_\-./ ]", name):
        if _is_known(plain(name[match.start() :])):
            return name[match.start() :]
    return name


def _is_known(low: str) -> bool:
    """Whether the table lists a name, already plain."""
    return any(low in candidates for _, candidates in _candidates(None))


def resolve(names: Iterable[str], mapping: Mapping[str, str] | None = None) -> dict[str, str]:
    """Logger's name -> canonical name, one to one, for all the metrics of one log at once.

    `mapping` is the user's, ours -> theirs (`--map loss=my_loss` is {"loss": "my_loss"}), and wins. Of several names for
    one metric the best known wins; the others keep their own. Raises UsageError when the user names a metric that the
    log does not have, or one metric twice.
    """
    return dict(_resolved(tuple(dict.fromkeys(names)), tuple((mapping or {}).items())))


@lru_cache(maxsize=64)
def _resolved(raw: tuple[str, ...], mapping: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """As `resolve`: the runs of one logger have the same names."""
    resolved = _mapped(raw, dict(mapping))
    rest = [name for name in raw if name not in resolved]
    resolved.update(_known({plain(name): name for name in reversed(rest)}, set(resolved.values())))
    taken = set(resolved.values())
    for name in rest:
        if name not in resolved:
            ours = _by_pattern(name) or name
            resolved[name] = ours if ours not in taken else _free(name, taken)
            taken.add(resolved[name])
    return {name: resolved[name] for name in raw}


def _mapped(raw: Sequence[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Logger's name -> the name that the user gave it."""
    resolved: dict[str, str] = {}
    for ours, theirs in mapping.items():
        if theirs not in raw:
            listed = ", ".join(raw[:NAMES_LISTED]) or "no metric"
            raise UsageError(f"--map {ours}={theirs}: the log has no {theirs!r}; it has {listed}")
        if theirs in resolved:
            raise UsageError(f"--map {ours}={theirs}: {theirs!r} is already mapped to {resolved[theirs]!r}")
        resolved[theirs] = ours
    return resolved


class _Claims:
    """Which of a log's names have got a canonical one; a claim fails when either is gone."""

    def __init__(self, by_plain: dict[str, str], taken: set[str]) -> None:
        self.by_plain, self.taken = by_plain, taken
        self.found: dict[str, str] = {}

    def claim(self, canonical: str, *candidates: str) -> None:
        """Give the canonical name to the first of the candidates (plain names) that is in the log and still free."""
        names = (self.by_plain[candidate] for candidate in candidates if candidate in self.by_plain)
        theirs = next((name for name in names if name not in self.found), None)
        if canonical not in self.taken and theirs is not None:
            self.found[theirs] = canonical
            self.taken.add(canonical)


def _known(by_plain: dict[str, str], taken: set[str]) -> dict[str, str]:
    """Logger's name -> canonical name, for what the table lists and for names that explain each other."""
    claims = _Claims(by_plain, taken)
    _claim_by_company(claims)
    split = _evaluates_train_data(by_plain)
    for canonical, candidates in _candidates("train/" if split else None):
        claims.claim(canonical, *candidates)
    _claim_groups(claims)
    if split:
        for low, theirs in by_plain.items():
            if low.startswith("train/"):
                claims.claim(theirs, low)
    return claims.found


@cache
def _candidates(without: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(canonical name, the plain names under which it is logged, best first); `without` one of TRAIN_PREFIXES."""
    prefixes = [prefix for prefix in TRAIN_PREFIXES if prefix != without]
    own = [(ours, tuple(f"{prefix}{a}" for a in aliases for prefix in prefixes)) for ours, aliases in ALIASES.items()]
    evals = tuple(f"{prefix}{name}" for name in _EVAL_LOSSES for prefix in EVAL_PREFIXES)
    return (*own, ("eval/loss", evals + _OTHER_EVAL_LOSSES))


def _claim_by_company(claims: _Claims) -> None:
    """Names that mean something only beside certain others."""
    known = claims.by_plain.keys()
    if "time" in known and {"data_time", "data", "mfu"} & known:  # seconds of one iteration, not since the start
        claims.claim("step_time", "time")
        claims.claim("data_time", "data")
    if {"r", "l", "t"} <= known:  # a monitor file of stable-baselines3
        claims.claim("reward", "r")
        claims.claim("time", "t")
    if {"d_a", "g_a"} <= known or "g_gan" in known:
        for low, theirs in claims.by_plain.items():
            if _GAN_TERM.fullmatch(low):
                claims.claim(f"loss/{theirs.strip()}", low)


def _evaluates_train_data(known: Iterable[str]) -> bool:
    """Whether train/<metric> is an evaluation on training data beside a step loss: it has a twin on validation data."""
    known = set(known)
    return "loss" in known and any(n.startswith("train/") and f"validation/{n[6:]}" in known for n in known)


def _claim_groups(claims: _Claims) -> None:
    """Learning rates of parameter groups: the first is `lr` when nothing else is, the others lr/<number>."""
    groups = [(int(match["number"]), low) for low in claims.by_plain if (match := _LR_GROUP.match(low))]
    optimizers = [low for low in claims.by_plain if _LR_OPTIMIZER.match(low)]
    for number, low in sorted(groups):
        claims.claim("lr", low)
        claims.claim(f"lr/{number}", low)
    for low in sorted(optimizers):
        claims.claim("lr", low)
        claims.claim(f"lr/{low.removeprefix('lr_')}", low)


def _free(name: str, taken: set[str]) -> str:
    """`name`, or the first of name~2, name~3 ... that no other metric has."""
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}~{n}"
    return candidate


def _by_pattern(name: str) -> str | None:
    """The canonical name of a metric that the table does not list; None for one that keeps its own name.

    Evaluation and test metrics keep their own spelling after the prefix: eval/mAP50(B).
    """
    own = name.strip()
    own = own.lower() if own.isupper() else own
    if rest := _eval_rest(own):
        return f"eval/loss/{part}" if (part := _part_of(rest)) else f"eval/{rest}"
    if match := _TEST.match(own):
        return f"test/{own[match.end() :]}" if own[match.end() :] else None
    if (match := _EXPERT_LOAD.match(own)) and (number := match["number"] or match["before"]):
        return f"expert_load/{int(number)}"
    if match := _LR_NAMED.match(plain(own)):
        return f"lr/{match['name']}"
    if match := _LOSS_OF.fullmatch(own):
        return f"loss/{match['part'].lower()}"
    return f"loss/{part}" if (part := _part_of(own)) else None


def _eval_rest(name: str) -> str | None:
    """What follows the prefix of an evaluation metric."""
    low = name.lower()
    prefix = next((prefix for prefix in (*EVAL_PREFIXES, "metrics/") if low.startswith(prefix)), None)
    if prefix is None:
        return None
    rest = name[len(prefix) :]
    if prefix in ("valid_", "dev_") and "loss" not in low and higher_is_better(rest) is None:
        return None  # "valid_action" is no evaluation
    if prefix == "metrics/" and rest.lower().startswith("train"):
        return None
    return (rest.removeprefix("avg_") if prefix == "evalstats/" else rest) or None


def _part_of(name: str) -> str | None:
    """The part of the loss that the name speaks of, or None."""
    match = _PART.match(name)
    if match is None:
        return None
    part: str = match["after"] or match["before"]
    low = part.lower()
    return None if low in _NOT_PARTS or _NOT_PARTS.intersection(low.split("_")) else part
