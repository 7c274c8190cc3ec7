"""What the verbs of the command line do: read, judge, render, write, and say which exit code that is."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from trainproof.errors import InputError, UsageError
from trainproof.facts import parse_fact_options
from trainproof.judge import Settings, judge_frames, judge_run, selected_rules, unjudged_run
from trainproof.readers.discover import Unread, read_inputs
from trainproof.verdict import Report, RunReport, Verdict, fold_verdicts

REPORT_FOLDER = ".trainproof"


class EpochOptions(NamedTuple):
    """The options of `trainproof epoch`, as they were typed."""

    paths: list[str]
    format_name: str | None
    mapping: list[str]
    facts: list[str]
    output_format: str
    output: str | None
    html: str | None
    write_html: bool
    select: list[str]
    ignore: list[str]
    fail_on: str
    exit_zero: bool
    quiet: bool
    color: str


class Judged(NamedTuple):
    """The report, and whether an input that the user named could not be judged."""

    report: Report
    named_unjudged: bool


def run_epoch(options: EpochOptions) -> int:
    """Judge the logs, print and write the reports; the exit code. Raises TrainproofError."""
    _one_of("--output-format", options.output_format, ("text", "json"))
    _one_of("--fail-on", options.fail_on, ("fail", "warn"))
    _one_of("--color", options.color, ("auto", "always", "never"))
    judged = _judge(options)
    _print_report(judged.report, options)
    if options.write_html:
        _write_html(judged.report, options)
    return _exit_code(judged, options)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option} {value!r}: expected {' or '.join(allowed)}")


def _judge(options: EpochOptions) -> Judged:
    settings = Settings(_selectors(options.select), _selectors(options.ignore))
    selected_rules(settings)  # a wrong selector is told before anything is read
    facts = parse_fact_options(options.facts)
    runs: list[RunReport] = []
    named_unjudged = False
    for result in read_inputs(options.paths, format_name=options.format_name, mapping=_mapping(options.mapping), facts=facts):
        if isinstance(result, Unread):
            print(f"trainproof: {result.why}", file=sys.stderr)
            runs.append(unjudged_run(result.path, result.why))
            named_unjudged |= result.named
            continue
        judged = [judge_run(frame, settings) for frame in result]
        named_unjudged |= all(run.verdict is Verdict.SKIP for run in judged) and judged[0].source in options.paths
        runs += judged
    report = judge_frames([], settings)
    return Judged(_with_runs(report, runs), named_unjudged)


def _with_runs(report: Report, runs: list[RunReport]) -> Report:
    from msgspec.structs import replace

    return replace(report, runs=tuple(runs), verdict=fold_verdicts(run.verdict for run in runs))


def _selectors(options: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for option in options for part in option.split(",") if part.strip())


def _mapping(options: list[str]) -> dict[str, str]:
    mapping = {}
    for option in options:
        ours, separator, theirs = option.partition("=")
        if not separator or not ours.strip() or not theirs.strip():
            raise UsageError(f"--map {option!r}: expected OURS=THEIRS, for example --map loss=my_loss")
        mapping[ours.strip()] = theirs.strip()
    return mapping


def _exit_code(judged: Judged, options: EpochOptions) -> int:
    verdicts = {run.verdict for run in judged.report.runs}
    failing = {Verdict.FAIL, Verdict.WARN} if options.fail_on == "warn" else {Verdict.FAIL}
    if verdicts & failing and not options.exit_zero:
        return 1
    if judged.named_unjudged or not verdicts - {Verdict.SKIP}:
        return 2
    return 0


def _print_report(report: Report, options: EpochOptions) -> None:
    if options.output_format == "json":
        from trainproof.report.json import render_json

        text = render_json(report)
    else:
        from trainproof.report.text import render_text

        color = options.output is None and _wants_color(options.color)
        text = render_text(report, color=color, width=shutil.get_terminal_size().columns, quiet=options.quiet)
    if options.output is None:
        sys.stdout.write(_encodable(text))
        sys.stdout.flush()
    else:
        write_whole(Path(options.output), text)


def _encodable(text: str) -> str:
    """The text with what the terminal's encoding cannot show replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _wants_color(color: str) -> bool:
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def _write_html(report: Report, options: EpochOptions) -> None:
    """The HTML report; a place that cannot be written costs one line, never the verdict."""
    from trainproof.report.html import render_html

    path = Path(options.html) if options.html else Path(REPORT_FOLDER) / f"epoch-{_stem(options.paths)}.html"
    try:
        if not options.html:
            path.parent.mkdir(exist_ok=True)
            ignored = path.parent / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n")
        write_whole(path, render_html(report))
        print(f"report: {path}", file=sys.stderr)
    except (OSError, InputError) as error:
        print(f"trainproof: no HTML report: {error}", file=sys.stderr)


def _stem(paths: list[str]) -> str:
    first = "stdin" if paths[0] == "-" else Path(paths[0]).stem.split(".")[0] or Path(paths[0]).name or "report"
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in first)[:80]
    return safe if len(paths) == 1 else f"{safe}-and-{len(paths) - 1}-more"


def write_whole(path: Path, text: str) -> None:
    """Write the file whole or not at all. Raises InputError when it cannot be written."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False, newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o666 & ~_umask())
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def print_rule(code: str) -> int:
    """Print a rule's page. Raises UsageError for an unknown rule."""
    from trainproof.report.rule_page import rule_text
    from trainproof.rules import all_rules

    for rule in all_rules().values():
        if code.upper() == rule.code or code.lower() == rule.name:
            sys.stdout.write(_encodable(rule_text(rule)))
            return 0
    raise UsageError(f"no rule {code!r}; `trainproof rules` lists them")


def print_rules() -> int:
    from trainproof.report.rule_page import rules_table

    sys.stdout.write(_encodable(rules_table()))
    return 0
