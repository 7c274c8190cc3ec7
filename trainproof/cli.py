"""The command line: arguments in, one call, exit code out."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from trainproof import __version__

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

Paths = Annotated[list[str], typer.Argument(help="Logs, directories of logs, quoted globs, or - for standard input.", metavar="LOG...")]
Format = Annotated[str | None, typer.Option("--format", help="Read the logs as this format; default: by their content.")]
Map = Annotated[list[str] | None, typer.Option("--map", help="OURS=THEIRS: the log's own name of a metric, e.g. --map loss=my_loss.")]
Fact = Annotated[list[str] | None, typer.Option("--fact", help="KEY=VALUE: what the run declared, e.g. --fact total_steps=10000.")]
Output = Annotated[str, typer.Option("--output-format", help="text or json.")]
OutputFile = Annotated[str | None, typer.Option("--output", "-o", help="Write the result to this file instead of standard output.")]
Html = Annotated[str | None, typer.Option("--html", help="Write the HTML report here; default: .trainproof/epoch-<log>.html.")]
NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no HTML report.")]
Select = Annotated[list[str] | None, typer.Option("--select", help="Run only these rules: codes, prefixes (TP2) or ALL.")]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", help="Do not run these rules: codes or prefixes.")]
FailOn = Annotated[str, typer.Option("--fail-on", help="fail or warn: the verdict from which on the exit code is 1.")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdict; unreadable input still exits 2.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="One line a run.")]
Color = Annotated[str, typer.Option("--color", help="auto, always or never.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Prove training runs: point it at a log, get PASS, WARN, FAIL or SKIP with the evidence.

    Exit codes: 0 PASS or WARN; 1 FAIL; 2 wrong usage, unreadable input, or nothing that could be judged.
    """
    if version:
        typer.echo(f"trainproof {__version__}")
        raise typer.Exit


@app.command()
def epoch(
    paths: Paths,
    format_name: Format = None,
    mapping: Map = None,
    fact: Fact = None,
    output_format: Output = "text",
    output: OutputFile = None,
    html: Html = None,
    no_html: NoHtml = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "fail",
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    color: Color = "auto",
) -> None:
    """Judge finished or growing training logs."""
    from trainproof.command import EpochOptions, run_epoch

    options = EpochOptions(
        paths=paths,
        format_name=format_name,
        mapping=mapping or [],
        facts=fact or [],
        output_format=output_format,
        output=output,
        html=html,
        write_html=not no_html,
        select=select or ["ALL"],
        ignore=ignore or [],
        fail_on=fail_on,
        exit_zero=exit_zero,
        quiet=quiet,
        color=color,
    )
    raise typer.Exit(run_epoch(options))


@app.command()
def rule(code: Annotated[str, typer.Argument(help="A rule's code, e.g. TP203, or its name.")]) -> None:
    """Explain one rule: what it does, why, its formula, thresholds, and known false positives."""
    from trainproof.command import print_rule

    raise typer.Exit(print_rule(code))


@app.command()
def rules() -> None:
    """List all rules."""
    from trainproof.command import print_rules

    raise typer.Exit(print_rules())


def main() -> None:
    """The entry point: no traceback ever leaves it (set TRAINPROOF_DEBUG=1 to see one)."""
    from trainproof.errors import TrainproofError

    try:
        app(standalone_mode=True)
    except TrainproofError as error:
        print(f"trainproof: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TRAINPROOF_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        print(f"trainproof: internal error, please report it ({what}); TRAINPROOF_DEBUG=1 shows where", file=sys.stderr)
        sys.exit(2)
