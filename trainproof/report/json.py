"""The JSON report: one object, the schema of which is `json_schema()`."""

from __future__ import annotations

from typing import Any

import msgspec

from trainproof.verdict import Report


def render_json(report: Report) -> str:
    """The report as indented JSON with a newline at the end; panels, which only pictures need, are left out."""
    document = msgspec.to_builtins(report)
    for run in document["runs"]:
        del run["panels"]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report."""
    return msgspec.json.schema(Report)
