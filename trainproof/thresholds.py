"""Every number that any rule uses, each with its unit and its source.

Sources: "measured" = `make calibrate` (docs/calibration.md says on what); "convention" = a limit that follows from how numbers are
printed or declared; anything else is named. A field can be overridden; an override is named in the report.
"""

from __future__ import annotations

import msgspec

from trainproof.errors import UsageError


class LogQualityThresholds(msgspec.Struct, frozen=True):
    """Family TP0."""


class NumericsThresholds(msgspec.Struct, frozen=True):
    """Family TP1."""


class LossThresholds(msgspec.Struct, frozen=True):
    """Family TP2."""

    # TP203 loss-diverged. Source: measured (0 of 3,200 healthy noise runs; every diverged gallery run).
    diverged_widths: tuple[int, ...] = (5, 20, 80, 320)  # records a level is smoothed over
    diverged_min_records: int = 9
    diverged_se: float = 9.0  # standard errors of a median of that many records
    diverged_ratio: float = 1.5  # level over best level, FAIL
    diverged_ratio_warn: float = 1.2
    diverged_ratio_fast: float = 3.0  # ratio at which fewer records are enough
    diverged_regained: float = 0.25  # share of the improvement given back, FAIL
    diverged_regained_warn: float = 0.15
    diverged_records: int = 10  # records that the state has to hold, or the smoothing width if longer
    diverged_records_fast: int = 5
    diverged_noise_units: float = 5.0  # rise in units of the noise where no ratio exists (best level <= 0)

    # TP201 loss-spike-episode. Source: measured (median of 5, z 4 and 5: 0 of 97 public runs fire).
    spike_min_records: int = 25
    spike_z: float = 5.0  # scales S above the baseline M
    spike_ratio: float = 1.10  # times M
    recovered_ratio: float = 1.05  # times M: below it an episode is over
    fast_min_records: int = 32
    fast_z: float = 8.0  # a single record, with corroboration
    fast_ratio: float = 1.5
    fast_grad_ratio: float = 8.0  # gradient norm over its median of 64 records
    fast_scale_cut: float = 4.0  # loss scale before over after

    # TP202 spike-not-recovered. Source: published recoveries (200 steps at 176B parameters, 2,000 at 104B).
    unrecovered_min_records: int = 65
    unrecovered_warn_records: int = 40
    unrecovered_fail_records: int = 200
    unrecovered_fail_share: float = 0.02  # of the planned steps

    # TP204 plateau. Source: measured (3 of 3 plateau curves, 0 of 270 noise runs).
    plateau_min_records: int = 100
    plateau_records: int = 50  # window: at least this many records ...
    plateau_shares: tuple[float, ...] = (0.30, 0.50)  # ... and these shares of those so far, either of them
    plateau_change: float = 0.01  # |change| + 2 SE over the window, as a share of the level
    plateau_left: float = 0.20  # of the run still to come
    plateau_lr: float = 0.20  # of the peak learning rate still applied
    plateau_quantised: int = 10  # records averaged where the loss is coarsely printed

    # TP205 never-learned. Source: measured (3 of 3 lr-zero runs, 0 healthy).
    never_min_records: int = 30
    never_drop: float = 0.10  # of the first decile's median
    never_se: float = 2.0  # standard errors added to the drop
    never_z: float = -3.0  # Mann-Kendall Z of a clear fall
    never_lr_zero_share: float = 0.20  # of the records with a learning rate of exactly 0: FAIL

    # TP206 too-good-too-early.
    early_min_records: int = 20
    early_loss: float = 0.05  # nats, median of 5
    early_loss_scratch: float = 1.0  # nats, a language model from scratch
    early_first: float = 0.5  # nats: the run did not start there
    early_epoch: float = 1.0  # epochs
    early_share: float = 0.20  # of the planned steps where epochs are unknown

    # TP207 init-loss-off. Source: ln V is the loss of a uniform guess; 1.48 ln V is the highest start of a public healthy run.
    init_min_records: int = 3
    init_integer: float = 0.05  # distance of first loss / ln V from an integer
    init_integer_most: int = 8
    init_ratio: float = 2.0
    init_ratio_scratch: float = 0.5
    init_loss_unknown: float = 15.0  # nats, a language model of unknown vocabulary (e^15 = 3.3 million tokens)

    # TP208 loss-exactly-zero. Source: convention.
    zero_records: int = 2
    zero_before: float = 0.05  # nats, median of 5 before: a loss of 0 was not near

    # TP209 worse-than-uniform. Source: convention (ln V is a uniform guess), with 5 % for noise.
    uniform_min_records: int = 70
    uniform_ratio: float = 1.05
    uniform_records: int = 20
    uniform_grace: int = 50  # records
    uniform_grace_share: float = 0.05  # of the planned steps
    uniform_loss_unknown: float = 15.0  # nats

    # TP210 level-shift. Source: measured (0 of 97 public runs; a 5 % shift found in 15 of 17).
    shift_min_records: int = 60
    shift_delta: float = 0.5  # scales S
    shift_lambda: float = 25.0  # scales S, summed
    shift_clip: float = 4.0  # scales S
    shift_side: int = 20  # records compared on either side
    shift_scales: float = 2.5
    shift_share: float = 0.03


class LearningRateThresholds(msgspec.Struct, frozen=True):
    """Family TP3."""


class GradientThresholds(msgspec.Struct, frozen=True):
    """Family TP4."""


class EvaluationThresholds(msgspec.Struct, frozen=True):
    """Family TP5."""


class Thresholds(msgspec.Struct, frozen=True):
    """All thresholds, one group a rule family (the field is the family's module name)."""

    log_quality: LogQualityThresholds = LogQualityThresholds()
    numerics: NumericsThresholds = NumericsThresholds()
    loss: LossThresholds = LossThresholds()
    learning_rate: LearningRateThresholds = LearningRateThresholds()
    gradients: GradientThresholds = GradientThresholds()
    evaluation: EvaluationThresholds = EvaluationThresholds()

    def with_overrides(self, overrides: dict[str, float]) -> Thresholds:
        """These thresholds with `family.field` keys replaced. Raises UsageError for an unknown key."""
        changed = self
        for key, value in overrides.items():
            family, _, field = key.partition(".")
            group = getattr(changed, family, None)
            if not isinstance(group, msgspec.Struct) or field not in group.__struct_fields__:
                raise UsageError(f"unknown threshold {key!r}; known keys look like loss.diverged_ratio")
            group = msgspec.structs.replace(group, **{field: value})
            changed = msgspec.structs.replace(changed, **{family: group})
        return changed

    def overrides(self) -> dict[str, float]:
        """`family.field` -> value for every threshold that differs from its default."""
        different = {}
        for family in self.__struct_fields__:
            mine, default = getattr(self, family), getattr(DEFAULT_THRESHOLDS, family)
            for field in mine.__struct_fields__:
                if getattr(mine, field) != getattr(default, field):
                    different[f"{family}.{field}"] = getattr(mine, field)
        return different


DEFAULT_THRESHOLDS = Thresholds()
