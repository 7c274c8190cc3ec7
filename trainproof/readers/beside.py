"""Facts that lie beside a log: model and trainer configs. Only scalars are read; nothing is executed and no pickle is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trainproof.facts import Facts

MOST_BYTES = 1024 * 1024

_YAML_LINE = re.compile(r"(?P<key>[A-Za-z_][\w.\-]*):[ \t]+(?P<value>[^\s#&*!|>\[{][^#]*?)\s*(?:#.*)?\Z")
_LM = re.compile(r"CausalLM|LMHead|CAUSAL_LM|SEQ_2_SEQ_LM|ConditionalGeneration|MaskedLM")
_CLASSIFIER = re.compile(r"ForSequenceClassification|ForTokenClassification|ForImageClassification|SEQ_CLS|TOKEN_CLS")


def facts_beside(log: Path) -> Facts:
    """The facts declared by the files in the log's folder; a file that cannot be read costs nothing."""
    facts = Facts()
    for name, read in _FILES.items():
        path = log.parent / name
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for key, value in read(text):
            facts.declare(key, value, name)
    return facts


def _json_fields(text: str) -> Iterator[tuple[str, object]]:
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    yield from document.items()
    described = f"{document.get('architectures')} {document.get('task_type')}"
    if _LM.search(described):
        yield "objective", "lm"
    elif _CLASSIFIER.search(described):
        yield "objective", "classification"


def _adapter_fields(text: str) -> Iterator[tuple[str, object]]:
    """A PEFT adapter is always trained on top of a pretrained model."""
    fields = [(key, value) for key, value in _json_fields(text) if key == "objective"]
    yield from fields
    if "base_model_name_or_path" in text or fields:
        yield "pretrained", True


def _yaml_fields(text: str) -> Iterator[tuple[str, object]]:
    """The top-level `key: scalar` lines; nested values, tags and anchors are passed over."""
    for line in text.splitlines():
        if match := _YAML_LINE.match(line):
            yield match["key"], match["value"]


_FILES: dict[str, Callable[[str], Iterator[tuple[str, object]]]] = {
    "adapter_config.json": _adapter_fields,
    "config.json": _json_fields,
    "hparams.yaml": _yaml_fields,
    "args.yaml": _yaml_fields,
}
