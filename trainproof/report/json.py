"""The JSON report: one object, the schema of which is `json_schema()`."""

from __future__ import annotations

from typing import Any

import msgspec

from trainproof.verdict import Report, RunReport


def render_json(report: Report) -> str:
    """The report as indented JSON with a newline at the end; panels, which only pictures need, are left out."""
    document = msgspec.to_builtins(msgspec.structs.replace(report, runs=tuple(map(_without_panels, report.runs))))
    for run in document["runs"]:
        del run["panels"]
        if run["compared"] is None:
            del run["compared"]
        if run["kind"] == "log":
            del run["kind"], run["repeat"]
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a path or a name with bytes that are no UTF-8
        encoded = msgspec.json.encode(_spelled(document))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the report."""
    schema = msgspec.json.schema(Report)
    definitions = schema["$defs"]
    del definitions["Panel"], definitions["RunReport"]["properties"]["panels"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "trainproof report", **schema}


def _without_panels(run: RunReport) -> RunReport:
    return msgspec.structs.replace(run, panels=())


def _spelled(value: Any) -> Any:
    """The document with every surrogate spelled out: JSON is UTF-8, which has none."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(key): _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, (list, tuple)) else value
