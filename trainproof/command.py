"""What the verbs of the command line do: read, judge, render, write, and say which exit code that is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from trainproof.api import judge_logs
from trainproof.errors import InputError, UsageError
from trainproof.facts import parse_fact_options
from trainproof.judge import Settings
from trainproof.many import processes
from trainproof.output import (
    colored,
    print_data,
    print_text,
    report_folder,
    report_stem,
    tell,
    terminal_width,
    write_whole,
)
from trainproof.profiles import thresholds_for
from trainproof.progress import progress_over
from trainproof.verdict import Report, Verdict


class Options(NamedTuple):
    """The options that the judging verbs share, as they were typed; `paths` are the inputs, which no output may overwrite."""

    paths: tuple[str, ...]
    format_name: str | None = None
    mapping: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    output_format: str = "text"
    output: str | None = None
    html: str | None = None
    no_html: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    profile: str | None = None
    fail_on: str = "fail"
    exit_zero: bool = False
    quiet: bool = False
    color: str = "auto"


def run_epoch(options: Options) -> int:
    """Judge the logs, print and write the reports; the exit code. Raises TrainproofError."""
    check_outputs(options)
    with progress_over(options.paths) as seen:
        judged = judge_logs(
            options.paths,
            settings_of(options),
            format_name=options.format_name,
            mapping=mapping_of(options.mapping),
            facts=parse_fact_options(options.facts),
            seen=seen,
            processes=processes(),
        )
    for problem in judged.problems:
        tell(str(problem))
    give_report(judged.report, options)
    if not options.no_html and len(judged.problems) < len(judged.report.runs):
        write_html(judged.report, options, f"epoch-{report_stem(options.paths)}")
    return exit_code(judged.report, judged.unjudged, options)


def settings_of(options: Options) -> Settings:
    """What to judge by. Raises UsageError for an unknown profile."""
    return Settings(rules_of(options.select) or ("ALL",), rules_of(options.ignore), thresholds_for(options.profile))


def check_outputs(options: Options) -> None:
    """Raises UsageError for outputs that contradict each other or would overwrite an input."""
    if options.html and options.no_html:
        raise UsageError("--html and --no-html: expected one of them")
    for option, target in (("--output", options.output), ("--html", options.html)):
        if target and any(
            Path(target).exists() and os.path.realpath(target) == os.path.realpath(path) for path in options.paths
        ):
            raise UsageError(f"{option} {target}: would overwrite the log; name another file")


def rules_of(options: tuple[str, ...]) -> tuple[str, ...]:
    """The selectors of `--select` or `--ignore`."""
    return tuple(part.strip() for option in options for part in option.split(",") if part.strip())


def mapping_of(options: tuple[str, ...]) -> dict[str, str]:
    """Our names -> the log's, of `--map`. Raises UsageError."""
    mapping = {}
    for option in options:
        ours, separator, theirs = option.partition("=")
        if not separator or not ours.strip() or not theirs.strip():
            raise UsageError(f"--map {option!r}: expected OURS=THEIRS, for example --map loss=my_loss")
        mapping[ours.strip()] = theirs.strip()
    return mapping


def give_report(report: Report, options: Options) -> None:
    """The result, on standard output or in the file that was asked for."""
    if options.output_format == "json":
        from trainproof.report.json import render_json

        text, give = render_json(report), print_data
    else:
        from trainproof.report.text import render_text

        color = options.output is None and colored(options.color)
        encoding = "utf-8" if options.output else (sys.stdout and sys.stdout.encoding) or "utf-8"
        text = render_text(report, color=color, width=terminal_width(), quiet=options.quiet, encoding=encoding)
        give = print_text
    if options.output is None:
        give(text)
    else:
        write_whole(Path(options.output), text)


def write_html(report: Report, options: Options, stem: str) -> None:
    """The HTML report; a place that cannot be written costs one line, never the verdict."""
    from trainproof.report.html import render_html

    try:
        path = Path(options.html) if options.html else report_folder() / f"{stem}.html"
        write_whole(path, render_html(report))
    except InputError as error:
        tell(f"no HTML report: {error}")
        return
    if not options.quiet:
        tell(f"HTML report: {path}")


def finish(report: Report, options: Options, inputs: tuple[str, ...], unjudged: bool | None = None) -> int:
    """Print and write the reports of what was judged in `inputs`; the exit code. unjudged: by default, whether nothing could be judged."""
    give_report(report, options)
    if not options.no_html:
        write_html(report, options, f"{report.command}-{report_stem(inputs)}")
    return exit_code(report, report.verdict is Verdict.SKIP if unjudged is None else unjudged, options)


def exit_code(report: Report, unjudged: bool, options: Options) -> int:
    """0 PASS or WARN, 1 FAIL, 2 when nothing of some input that was named could be judged."""
    verdicts = {run.verdict for run in report.runs}
    failing = {Verdict.FAIL, Verdict.WARN} if options.fail_on == "warn" else {Verdict.FAIL}
    if verdicts & failing and not options.exit_zero:
        return 1
    return 2 if unjudged else 0


def print_rule(code: str) -> int:
    """Print a rule's page. Raises UsageError for an unknown rule."""
    from trainproof.report.rule_page import rule_text
    from trainproof.rules import all_rules

    for rule in all_rules().values():
        if code.upper() == rule.code or code.lower() == rule.name:
            print_text(rule_text(rule))
            return 0
    raise UsageError(f"no rule {code!r}; `trainproof rules` lists them")


def print_rules() -> int:
    """Print all rules, one a line."""
    from trainproof.report.rule_page import rules_table

    print_text(rules_table())
    return 0
