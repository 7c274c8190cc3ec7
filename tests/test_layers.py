"""Arrows between modules point down only, and nothing heavy is imported to judge a log."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainproof

PACKAGE = Path(trainproof.__file__).parent

#: from the top down; a module may import those of its own layer and of the layers below
LAYERS = (
    ("__main__", "cli"),
    ("compare_command", "checkpoint_command", "preflight_command", "replay_command", "bisect_command"),
    ("watch_command", "integrations"),
    ("watching",),
    ("resume_command",),
    ("replay",),
    ("record",),
    ("guardian", "live"),
    ("command", "progress", "preflight.resuming"),
    ("api", "output"),
    ("many",),
    ("comparing.compare", "comparing.load", "comparing.store", "comparing.drawing"),
    ("report.rule_page", "checkpoint.inspecting"),
    ("preflight.judging",),
    ("apart",),
    ("judge", "profiles"),
    ("folding", "panels", "decimate"),
    ("rules", "preflight"),
    ("comparing", "checkpoint", "experiments", "record.storage", "record.codec", "record.framework"),
    ("readers", "stats", "thresholds"),
    ("names", "segments", "objective"),
    ("frame", "report"),
    ("facts", "verdict"),
    ("errors", "plugins"),
)
#: pairs that know nothing of each other, whatever their layers
STRANGERS = {
    frozenset(pair)
    for pair in (
        ("rules", "readers"),
        ("stats", "readers"),
        ("thresholds", "readers"),
        ("report", "frame"),
        ("report", "facts"),
        ("verdict", "frame"),
        ("verdict", "facts"),
    )
}
#: Frame.from_pandas is the one call upwards: users look for it on Frame, and it imports the reader only when called
EXCEPTIONS = {("frame", "readers.memory.frame_of")}


def modules(package: Path) -> dict[str, str]:
    """Name below the package -> source."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path.read_text()
    return found


def imports(source: str) -> Iterator[str]:
    """The project's modules that a source imports anywhere in it, also lazily or for its types, by name below the package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.partition(".")[2] for name in names if name.startswith("trainproof."))


def layer_of(name: str) -> int | None:
    """The most specific layer of a module (or of a name in it); None for the package's own names, such as its version."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        for index, layer in enumerate(LAYERS):
            if ".".join(parts[:size]) in layer:
                return index
    return None


def violations(sources: dict[str, str]) -> list[str]:
    """Every arrow that points up or between strangers, and every module that no layer knows."""
    found = []
    for name, source in sources.items():
        mine = layer_of(name)
        if mine is None:
            found.append(f"{name} is in no layer")
            continue
        for target in imports(source):
            theirs = layer_of(target)
            if theirs is None or (name, target) in EXCEPTIONS:
                continue
            if theirs < mine or {name.split(".")[0], target.split(".")[0]} in STRANGERS:
                found.append(f"{name} imports {target}")
    return found


def test_arrows_point_down() -> None:
    assert violations(modules(PACKAGE)) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("verdict", "from trainproof.frame import Frame"),
        ("frame", "from trainproof.readers.jsonl import JSONLReader"),
        ("readers.jsonl", "from trainproof.rules.registry import Rule"),
        ("readers.jsonl", "def f():\n    from trainproof import judge"),
        ("rules.loss", "import trainproof.readers.jsonl"),
        ("rules.loss", "if TYPE_CHECKING:\n    from trainproof.judge import Settings"),
        ("report.text", "from trainproof.rules import all_rules"),
        ("report.text", "from trainproof.frame import Frame"),
        ("stats", "from trainproof.rules import registry"),
        ("judge", "from trainproof.cli import app"),
        ("something.new", ""),
    ],
)
def test_the_test_of_layers_can_fail(name: str, line: str) -> None:
    sources = modules(PACKAGE)
    assert len(violations({**sources, name: sources.get(name, "") + "\n" + line})) == 1


HEAVY = ("torch", "transformers", "pandas", "soundfile", "sentencepiece")

LOADED = """
import json, sys
{code}
print(json.dumps([name for name in {names} if name in sys.modules]))
"""


def loaded(code: str, names: tuple[str, ...] = HEAVY) -> list[str]:
    """Which of the modules are loaded after `code` ran in a fresh interpreter."""
    script = LOADED.format(code=code, names=names)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    result: list[str] = json.loads(run.stdout.splitlines()[-1])
    return result


def judging(path: Path) -> str:
    path.write_text("".join(f'{{"step": {i}, "loss": {3 / i}}}\n' for i in range(1, 60)))
    return f"""
sys.argv = ["trainproof", "epoch", {str(path)!r}, "--no-html"]
from trainproof.cli import main
try:
    main()
except SystemExit as done:
    assert done.code == 0
"""


def test_import_trainproof_loads_nothing() -> None:
    assert loaded("import trainproof", (*HEAVY, "numpy", "msgspec", "click", "jinja2")) == []


def test_a_verdict_on_a_log_loads_nothing_heavy(tmp_path: Path) -> None:
    code = judging(tmp_path / "log.jsonl")
    assert loaded(code, (*HEAVY, "jinja2", "zstandard", "importlib.metadata")) == []  # the last where no plug-in is
    assert loaded(code, ("trainproof.rules.comparison", "trainproof.comparing.compare", "concurrent.futures")) == []
    assert loaded(code, ("numpy", "trainproof.rules.loss")) == ["numpy", "trainproof.rules.loss"]


def test_the_test_of_heavy_imports_can_fail(tmp_path: Path) -> None:
    code = judging(tmp_path / "log.jsonl")
    assert loaded("import trainproof, pandas") == ["pandas"]
    assert loaded(code + "\nimport trainproof\ntrainproof.read(sys.argv[2]).to_pandas()") == ["pandas"]
