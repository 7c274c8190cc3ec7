"""The plug-in under examples/plugin, installed as pip would, and what becomes of broken ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


def declare(site: Path, distribution: str, entry_points: dict[str, dict[str, str]]) -> None:
    """The metadata that an installer writes for a distribution."""
    info = site / f"{distribution.replace('-', '_')}-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0.0\n")
    sections = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder on sys.path with the example's metadata; its modules lie in examples/plugin."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    declare(tmp_path / "site", project["name"], project["entry-points"])
    return tmp_path / "site"


def run(site: Path, *arguments: str, plugins: str = "1") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), str(EXAMPLE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "TRAINPROOF_PLUGINS": plugins}
    command = [sys.executable, "-m", "trainproof", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True)


@pytest.fixture
def lap_log(tmp_path: Path) -> Path:
    """A healthy curve whose laps per second fall from 4 to 1 at lap 31."""
    path = tmp_path / "lap.txt"
    lines = [f"lap {i}: loss={2 / i + 1} laps_per_s={4 if i < 31 else 1}" for i in range(1, 61)]
    path.write_text("\n".join(["starting", *lines]) + "\n")
    return path


def test_the_reader_and_the_rule_of_another_package_are_used(site: Path, lap_log: Path) -> None:
    done = run(site, "epoch", str(lap_log), "--no-html", "--output-format", "json")
    assert done.stderr == ""
    (judged,) = json.loads(done.stdout)["runs"]
    assert (judged["format"], judged["records"], judged["dropped"], judged["verdict"]) == ("lap", 60, 1, "WARN")
    (finding,) = [f for f in judged["findings"] if f["rule"] == "DEMO101"]
    assert (finding["first_step"], finding["last_step"], finding["evidence"][0]["line"]) == (31, 35, 32)


def test_it_can_be_named_selected_and_explained(site: Path, lap_log: Path) -> None:
    done = run(site, "epoch", str(lap_log), "--no-html", "--format", "lap", "--select", "DEMO")
    assert done.returncode == 0
    assert "DEMO101 laps-halved" in done.stdout
    assert "trainproof rule DEMO101" in done.stdout
    told = run(site, "rule", "laps-halved").stdout
    assert "DEMO101 laps-halved" in told
    assert "share = 0.5: of the median of the first records" in told
    assert run(site, "rules").stdout.splitlines()[-1].startswith("DEMO101")


def test_plugins_can_be_left_out(site: Path, lap_log: Path) -> None:
    done = run(site, "epoch", str(lap_log), "--no-html", "--format", "lap", plugins="0")
    assert done.returncode == 2
    assert "unknown format 'lap'" in done.stderr


BROKEN = {
    "nothing": "",
    "missing": "import no_such_module",
    "exits": "raise SystemExit(3)",
    "nameless": "class R:\n    description = 'x'\n    def sniff(self, head): ...\n    def read(self, log, out): ...",
    "taken": "class R:\n    name = 'csv'\n    description = 'x'\n    def sniff(self, head): ...\n    def read(self, log, out): ...",
    "no_class": "R = 3",
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_reader_is_named_with_its_distribution_and_costs_nothing_else(
    site: Path, lap_log: Path, kind: str
) -> None:
    (site / "broken_reader.py").write_text(BROKEN[kind])
    declare(site, "acme-logs", {"trainproof.readers": {"acme": "broken_reader:R"}})
    done = run(site, "epoch", str(lap_log), "--no-html", "--quiet")
    assert done.returncode == 0
    assert done.stdout.startswith("WARN")
    (line,) = done.stderr.splitlines()
    assert line.startswith("trainproof: plug-in 'acme' of acme-logs 1.0.0 is left out: ")


def test_a_reader_that_raises_at_its_work_is_named(site: Path, lap_log: Path) -> None:
    source = "class R:\n name = 'acme'\n description = 'x'\n def sniff(self, head): return 1 / 0\n def read(self, log, out): return {}[log]"
    (site / "broken_reader.py").write_text(source)
    declare(site, "acme-logs", {"trainproof.readers": {"acme": "broken_reader:R"}})
    done = run(site, "epoch", str(lap_log), "--no-html", "--quiet")
    assert (done.returncode, done.stdout[:4]) == (0, "WARN")
    assert done.stderr.splitlines() == [
        "trainproof: plug-in 'acme' of acme-logs 1.0.0 is left out: ZeroDivisionError: division by zero"
    ]
    forced = run(site, "epoch", str(lap_log), "--no-html", "--quiet", "--format", "acme")
    assert forced.returncode == 2
    assert "plug-in 'acme' of acme-logs 1.0.0 failed: KeyError" in forced.stderr


RULE = """
from trainproof.rules.registry import WARN, rule
@rule({code!r}, "acme-rule", severity=WARN, fix="Nothing.")
def acme(frame, t):
    "It fails."
    raise RuntimeError("on\\nits own")
    yield
"""


def test_a_rule_that_raises_is_skipped_with_the_reason(site: Path, lap_log: Path) -> None:
    (site / "acme_rules.py").write_text(RULE.format(code="ACME101"))
    declare(site, "acme-rules", {"trainproof.rules": {"acme": "acme_rules"}})
    done = run(site, "epoch", str(lap_log), "--no-html", "--output-format", "json")
    (judged,) = json.loads(done.stdout)["runs"]
    assert judged["skipped"]["ACME101"] == "plug-in 'acme' of acme-rules 1.0.0 failed: RuntimeError: on its own"
    assert [f["rule"] for f in judged["findings"] if f["severity"] == "WARN"] == ["DEMO101"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (RULE.format(code="ACME101") + "raise OSError('late')", "OSError: late"),
        (RULE.format(code="TP299"), "ValueError: TP299: codes that begin with TP are trainproof's own"),
        (RULE.format(code="TP203"), "ValueError: TP203 is registered twice"),
        (RULE.format(code="acme"), "ValueError: acme is no code such as ACME101"),
    ],
)
def test_a_broken_package_of_rules_is_named_and_none_of_its_rules_stays(
    site: Path, lap_log: Path, source: str, why: str
) -> None:
    (site / "acme_rules.py").write_text(source)
    declare(site, "acme-rules", {"trainproof.rules": {"acme": "acme_rules"}})
    done = run(site, "epoch", str(lap_log), "--no-html", "--output-format", "json")
    assert done.stderr == f"trainproof: plug-in 'acme' of acme-rules 1.0.0 is left out: {why}\n"
    (judged,) = json.loads(done.stdout)["runs"]
    ran = {*judged["checked"], *judged["skipped"]}
    assert "TP203" in ran
    assert "DEMO101" in ran
    assert not ran & {"ACME101", "TP299"}
