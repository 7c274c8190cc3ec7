"""Every kind of fault in a speech pack is named by its check, at its rows; the clean twin has no finding at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.helpers import judged, rows_told
from tools.speech_faults import SPEECH_FAULTS, clean_items, with_faults, write_pack
from trainproof.preflight.found import Found
from trainproof.verdict import RunReport

Judged = tuple[RunReport, Found, dict[str, list[int]]]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    items, where = with_faults(clean_items(260), 2, SPEECH_FAULTS)
    folder = write_pack(tmp_path_factory.mktemp("speech") / "pack", items)
    (folder / "wavs" / "forgotten.wav").write_bytes((folder / "wavs" / "clip00001.wav").read_bytes())
    return *judged(folder), where


@pytest.mark.parametrize("name", SPEECH_FAULTS)
def test_a_fault_is_named(name: str, pack: Judged) -> None:
    report, found, where = pack
    assert set(where[name]) <= rows_told(report, found, SPEECH_FAULTS[name][0])


def test_no_clip_without_a_fault_is_told(pack: Judged) -> None:
    report, found, where = pack
    broken = {row for rows in where.values() for row in rows}
    for finding in report.findings:
        if finding.rule != "TPD242":
            assert rows_told(report, found, finding.rule) <= broken, finding.rule


def test_a_sound_that_no_manifest_names_is_told(pack: Judged) -> None:
    report, _, _ = pack
    told = next(finding for finding in report.findings if finding.rule == "TPD242")
    assert any(point.excerpt.endswith("forgotten.wav") for point in told.evidence)


def test_the_clean_twin_has_no_finding(tmp_path: Path) -> None:
    report, found = judged(write_pack(tmp_path / "pack", clean_items(200, seed=6)))
    assert (found.kind, found.rows) == ("speech", 200)
    assert report.findings == ()
    assert report.verdict == "PASS"
