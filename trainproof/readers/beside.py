"""Facts that lie beside a log: model and trainer configs. Only scalars; nothing is executed, no pickle opened."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trainproof.facts import Facts, FactValue, is_setting, parse_scalar

#: a config is a few kilobytes
MOST_BYTES = 1024 * 1024

#: `key: scalar` at the left margin. A value that begins with a mark of YAML's is nested, tagged, an anchor or a block.
_YAML_LINE = re.compile(
    r"""(?P<key>[A-Za-z_][\w.\-]*):[ \t]+(?P<value>"[^"]*"|'[^']*'|[^\s#&*!|>%@`\[{"'][^#]*?)\s*(?:#.*)?"""
)
_YAML_NOTHING = frozenset({"null", "Null", "NULL", "~"})
_LM = re.compile(r"CausalLM|LMHead|CAUSAL_LM|SEQ_2_SEQ_LM|ConditionalGeneration|MaskedLM")
_CLASSIFIER = re.compile(r"For(?:Sequence|Token|Image|Audio)Classification|SEQ_CLS|TOKEN_CLS")
#: the facts in an HF model's config; its other fields share names with trainers' and mean something else
_MODEL_FIELDS = ("vocab_size", "num_labels", "torch_dtype", "dtype", "model_type")
#: names that mean a fact in a trainer's config, and are too general to be one everywhere
_TRAINER_FIELDS = {"lr": "learning_rate"}


def facts_beside(log: Path) -> Facts:
    """The facts declared by the configs in the log's folder; a file that cannot be read costs nothing."""
    facts, folder = Facts(), os.path.dirname(log)
    for name, fields in _CONFIGS.items():
        if text := small_text(os.path.join(folder, name)):
            for key, value in fields(text):
                declare_setting(facts, key, value, name)
    return facts


def declare_setting(facts: Facts, key: str, value: object, where: str) -> None:
    """Note what a trainer's config says under `key`; a setting that was left open says nothing."""
    if value not in ("", "None", "null"):
        facts.declare(_TRAINER_FIELDS.get(key, key), value, where)


def small_text(path: str | Path) -> str:
    """The file's text; nothing when it is missing, too large, no regular file, or not readable."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return ""
        with open(path, "rb") as file:
            return file.read(MOST_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):  # a NUL in the path is a ValueError
        return ""


def _json_object(text: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _config_fields(text: str) -> Iterator[tuple[str, object]]:
    """A `config.json` is an HF model's or a trainer's (Coqui writes its whole run there)."""
    yield from config_fields(_json_object(text))


def config_fields(config: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What the fields of such a config declare."""
    if "architectures" in config or "model_type" in config:
        yield from ((key, config[key]) for key in _MODEL_FIELDS if key in config)
        yield from _objective(config)
    else:
        yield from config.items()


def _adapter_fields(text: str) -> Iterator[tuple[str, object]]:
    """A PEFT adapter is trained on top of a model that was trained before."""
    config = _json_object(text)
    if "peft_type" in config or config.get("base_model_name_or_path"):
        yield "pretrained", True
        yield from _objective(config)


def _objective(config: dict[str, Any]) -> Iterator[tuple[str, object]]:
    described = f"{config.get('architectures')} {config.get('task_type')}"
    if _LM.search(described):
        yield "objective", "lm"
    elif _CLASSIFIER.search(described):
        yield "objective", "classification"


def yaml_fields(text: str) -> Iterator[tuple[str, object]]:
    """The top-level `key: scalar` lines; everything else in the file is passed over."""
    for line in text.splitlines():
        if (match := _YAML_LINE.fullmatch(line)) and match["value"] not in _YAML_NOTHING:
            yield match["key"], match["value"]


_CONFIGS: dict[str, Callable[[str], Iterator[tuple[str, object]]]] = {
    "adapter_config.json": _adapter_fields,
    "config.json": _config_fields,
    "hparams.yaml": yaml_fields,
    "args.yaml": yaml_fields,
}


# What is only shown, not judged by

#: files whose scalars are settings of the run, however deep they lie
SETTINGS_FILES = (
    "config.json",
    "adapter_config.json",
    "metadata.json",
    "training_args.json",
    "hparams.yaml",
    "args.yaml",
)
#: settings kept of one run, and levels of nesting followed
MOST_SETTINGS, MOST_LEVELS = 300, 5


def settings_beside(log: Path) -> dict[str, FactValue]:
    """Every scalar of the configs in the log's folder, by `<file stem>.<path in the file>`; a comparison lists those that differ."""
    folder = log if log.is_dir() else log.parent
    found: dict[str, FactValue] = {}
    for name in SETTINGS_FILES:
        text = small_text(folder / name)
        fields = yaml_fields(text) if name.endswith(".yaml") else _scalars(_json_object(text), MOST_LEVELS)
        for key, value in fields:
            setting = parse_scalar(value) if isinstance(value, str) else value
            if is_setting(setting) and len(found) < MOST_SETTINGS:
                found[f"{name.partition('.')[0]}.{key}"] = setting
    return found


def _scalars(document: dict[str, Any], levels: int) -> Iterator[tuple[str, object]]:
    """(dotted path, value) of everything in nested objects that is no object; lists are left out."""
    for key, value in document.items():
        if isinstance(value, dict) and levels:
            yield from ((f"{key}.{below}", scalar) for below, scalar in _scalars(value, levels - 1))
        elif not isinstance(value, (dict, list)):
            yield key, value
