from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from tests.report.corpus import HOSTILE, REPORTS, diverged, finding, hostile, report, run
from trainproof.report.json import json_schema, render_json
from trainproof.verdict import Evidence, Report


def without_panels(seen: Report) -> Report:
    return msgspec.structs.replace(seen, runs=tuple(msgspec.structs.replace(r, panels=()) for r in seen.runs))


@pytest.mark.parametrize("name", sorted(REPORTS.keys() - {"hostile"}))
def test_reads_back_equal(name: str) -> None:
    seen = REPORTS[name]()
    assert msgspec.json.decode(render_json(seen), type=Report) == without_panels(seen)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_is_valid_by_its_own_schema_and_has_no_nan_token(name: str) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    document = json.loads(render_json(REPORTS[name]()), parse_constant=refuse)
    jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_schema_refuses_what_a_report_is_not() -> None:
    document = json.loads(render_json(diverged()))
    document["runs"][0]["findings"][0]["severity"] = "BAD"
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document)


def test_shape_is_the_promised_one() -> None:
    text = render_json(diverged())
    document = json.loads(text)
    assert text.endswith("}\n")
    assert list(document) == ["schema_version", "trainproof", "command", "verdict", "runs"]
    only = document["runs"][0]
    assert "panels" not in only
    assert only["segments"] == [
        {"start": 1, "end": 42, "why": "start"},
        {"start": 43, "end": 100, "why": "resume at step 43"},
    ]
    assert only["findings"][0]["rule"] == "TP203"
    assert only["findings"][0]["related"][0]["rule"] == "TP401"
    assert only["skipped"]["TP501"] == "no eval/loss in the log"


def test_nonfinite_values_are_words_and_floats_are_shortest() -> None:
    points = (Evidence("loss", 1, "NaN", 1), Evidence("loss", 2, "-Infinity", 2), Evidence("loss", 3, 0.1, 3))
    text = render_json(report(run({"loss": [1.0]}, [finding(evidence=points)])))
    values = [e["value"] for e in json.loads(text)["runs"][0]["findings"][0]["evidence"]]
    assert values == ["NaN", "-Infinity", 0.1]
    assert '"value": 0.1,' in text


def test_bytes_that_are_no_utf8_are_spelled_out() -> None:
    source = json.loads(render_json(hostile()))["runs"][0]["source"]
    assert source == HOSTILE.replace("\ud800", "\\ud800")
