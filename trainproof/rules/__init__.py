"""The rules, one family a module. `all_rules()` imports them and returns the registry, ordered by code."""

from __future__ import annotations

from importlib import import_module

from trainproof.rules.registry import FAMILIES, RULES, Rule


def all_rules() -> dict[str, Rule]:
    """Every rule by code, in order of code."""
    for family in FAMILIES.values():
        import_module(f"trainproof.rules.{family}")
    return dict(sorted(RULES.items()))
