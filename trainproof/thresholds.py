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
