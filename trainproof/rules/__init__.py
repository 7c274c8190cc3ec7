"""The rules, one family a module. `all_rules()` imports them and returns the registry, ordered by code."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from trainproof import plugins
from trainproof.rules.registry import APART, FAMILIES, PLUGIN_FAMILY, PREFLIGHT, RULES, Rule


def all_rules() -> dict[str, Rule]:
    """Every rule by code, in order of code; those of other packages come after ours."""
    return {**own_rules(), **_plugin_rules()}


def log_rules() -> dict[str, Rule]:
    """The rules that judge one log; those that look at something else are not even imported."""
    return {**_own_log_rules(), **_plugin_rules()}


@cache
def own_rules() -> dict[str, Rule]:
    """The rules of this package."""
    return dict(sorted({**_own_log_rules(), **_imported(frozenset(APART))}.items()))


@cache
def _own_log_rules() -> dict[str, Rule]:
    return _imported(frozenset(FAMILIES.values()) - set(APART))


@cache
def rules_of(family: str) -> dict[str, Rule]:
    """The rules of one of our families; no other is imported."""
    return _imported(frozenset((family,)))


def _imported(families: frozenset[str]) -> dict[str, Rule]:
    """Our rules of some families, in order of code."""
    for family in sorted(families):
        for module in PREFLIGHT.get(family, (f"rules.{family}",)):
            import_module(f"trainproof.{module}")
    return {code: RULES[code] for code in sorted(RULES) if RULES[code].family in families}


@cache
def _plugin_rules() -> dict[str, Rule]:
    """The rules that other packages register when their entry points are loaded; all or none of each plug-in's."""
    found: dict[str, Rule] = {}
    own = {code for code, rule in RULES.items() if rule.family != PLUGIN_FAMILY} | set(_own_log_rules())
    for plugin in plugins.plugins(plugins.RULES):
        try:
            plugin.load()
            fresh = {code: rule for code, rule in RULES.items() if code not in own and code not in found}
            reserved = [code for code in fresh if code.startswith("TP")]
            if reserved:
                raise ValueError(f"{reserved[0]}: codes that begin with TP are trainproof's own")
        except (Exception, SystemExit) as error:
            plugins.broken(plugin, error)
            _forget(set(RULES) - own - set(found))
        else:
            found.update({code: rule._replace(plugin=str(plugin)) for code, rule in fresh.items()})
    return dict(sorted(found.items()))


def _forget(codes: set[str]) -> None:
    for code in codes:
        del RULES[code]
