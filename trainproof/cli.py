"""The command line: arguments in, one call, exit code out."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from trainproof import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="trainproof", message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Prove training runs: point it at a log, get PASS, WARN, FAIL or SKIP with the evidence.

    Exit codes: 0 PASS or WARN; 1 FAIL; 2 wrong usage, unreadable input, or nothing that could be judged.
    """
    if context.invoked_subcommand is None:
        raise click.UsageError("no command; try `trainproof epoch LOG`, or `trainproof --help`")


#: as in trainproof.preflight.trainers, which is imported only when it is needed
TRAINERS = ["piper", "xtts", "whisper", "nemo-ctc", "trl-sft", "axolotl", "llama-factory"]
#: the options that all verbs share which judge runs
_SHARED = (
    click.option(
        "--format", "format_name", metavar="NAME", help="Read the logs as this format; default: by their content."
    ),
    click.option(
        "--map", "mapping", multiple=True, metavar="OURS=THEIRS", help="The log's name of a metric: loss=my_loss."
    ),
    click.option(
        "--fact", "facts", multiple=True, metavar="KEY=VALUE", help="What the run declared: total_steps=10000."
    ),
    click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    click.option("-o", "--output", metavar="FILE", help="Write the result there instead of to standard output."),
    click.option(
        "--html", metavar="FILE", help="Write the HTML report there; default: .trainproof/<command>-<log>.html."
    ),
    click.option("--no-html", is_flag=True, help="Write no HTML report."),
    click.option(
        "--select", multiple=True, metavar="RULES", help="Run only these rules: codes or prefixes, with commas."
    ),
    click.option(
        "--ignore", multiple=True, metavar="RULES", help="Leave these rules out: codes or prefixes, with commas."
    ),
    click.option(
        "--profile",
        type=click.Choice(["pretrain", "finetune", "preference", "rl", "vision", "tts"]),
        help="Thresholds for this kind of training; default: those for every kind.",
    ),
    click.option(
        "--fail-on", type=click.Choice(["fail", "warn"]), default="fail", show_default=True, help="What exits 1."
    ),
    click.option("--exit-zero", is_flag=True, help="Exit 0 on FAIL too; what cannot be judged still exits 2."),
    click.option("-q", "--quiet", is_flag=True, help="One line a run, and no hints."),
    click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
)


#: ... of which the first three are about logs
_ABOUT_LOGS = 3


def _judging(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the shared options."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


def _reporting(command: Callable[..., int]) -> Callable[..., int]:
    """The command with those of the shared options that are not about logs."""
    for option in reversed(_SHARED[_ABOUT_LOGS:]):
        command = option(command)
    return command


@app.command()
@click.argument("paths", nargs=-1, required=True, metavar="LOG...")
@_judging
def epoch(**options: Any) -> int:
    """Judge finished or growing training logs.

    LOG is a file (also .gz, .xz or .zst), a directory of runs, a quoted glob, or - for standard input.
    """
    from trainproof.command import Options, run_epoch

    return run_epoch(Options(**options))


@app.command()
@click.argument("run", metavar="RUN")
@click.argument("baselines", nargs=-1, metavar="[BASELINE]...")
@click.option(
    "--align",
    type=click.Choice(["step", "tokens", "samples", "epoch"]),
    help="Match on this; default: by what all have.",
)
@click.option("--baseline", "names", multiple=True, metavar="NAME", help="Compare with this baseline of the store.")
@click.option(
    "--store", default="trainproof-baselines", show_default=True, metavar="DIR", help="Where baselines are stored."
)
@click.option(
    "--against", type=(click.Choice(["best"]), str), metavar="best DIR", help="Compare with the best run of a folder."
)
@_judging
def compare(run: str, baselines: tuple[str, ...], **options: Any) -> int:
    """Judge RUN by itself and beside the runs that are trusted: is it worse by more than noise and seeds explain?

    BASELINE is a log, a folder of logs, or a stored baseline; several (seeds) make a band.
    """
    from trainproof.compare_command import CompareOptions, run_compare

    own = {name: options.pop(name) for name in ("align", "names", "store", "against")}
    return run_compare(CompareOptions(run, baselines, **own), options)


@app.command()
@click.argument("path", metavar="CKPT")
@click.argument("older", required=False, metavar="[OTHER]")
@click.option("--frozen", multiple=True, metavar="PATTERN", help="Parameters that are frozen on purpose: encoder.*")
@click.option("--verify", is_flag=True, help="Check the checksum of every byte too; it takes about five times as long.")
@_reporting
def checkpoint(path: str, older: str | None, frozen: tuple[str, ...], verify: bool, **options: Any) -> int:
    """Look into a checkpoint without loading it: NaN, dead and unchanged weights, missing state, damage.

    CKPT is a file (.pt, .pth, .ckpt, .bin, .safetensors, .index.json) or a folder (of a Trainer, of
    torch.distributed.checkpoint). OTHER is an older one of the same run to compare with. Nothing is unpickled.
    """
    from trainproof.checkpoint_command import run_checkpoint

    return run_checkpoint(path, older, frozen, verify, options)


@app.command()
@click.argument("paths", nargs=-1, required=True, metavar="LOG...")
@click.option("--until-fail", is_flag=True, help="Exit 1 as soon as a run fails.")
@click.option("--once", is_flag=True, help="Read what there is, judge it as finished, and exit.")
@click.option(
    "--interval", type=click.FloatRange(0.01, 86400), default=10.0, show_default=True, help="Seconds between looks."
)
@click.option(
    "--stall-timeout",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="A run without a record for so many seconds fails (TP907), unless it is slow by nature.",
)
@click.option(
    "--pid",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="The process that writes the logs: when it has ended, so have they.",
)
@click.option("--exec", "exec_command", metavar="CMD", help="Run CMD for each finding, given as JSON on its input.")
@click.option("--html", metavar="FILE", help="Keep an HTML report there that reloads itself.")
@click.option("--format", "format_name", metavar="NAME", help="Read the logs as this format.")
@click.option("--map", "mapping", multiple=True, metavar="OURS=THEIRS", help="The log's name of a metric.")
@click.option("--fact", "facts", multiple=True, metavar="KEY=VALUE", help="What the run declared.")
@click.option("--select", multiple=True, metavar="RULES", help="Run only these rules.")
@click.option("--ignore", multiple=True, metavar="RULES", help="Leave these rules out.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def watch(**options: Any) -> int:
    """Judge logs while they grow, from outside of the process that writes them.

    LOG is a file (it may come later), a directory (new runs join), or a quoted glob. On a terminal there is one live line a run,
    otherwise a line when a verdict changes. Exits at the runs' end markers or with the process --pid (0, or 1 when one failed; 2
    when nothing could be judged), at the first FAIL with --until-fail, or when it is interrupted. Many logs (JSON lines, CSV) have no end marker:
    without --pid they are watched until it is interrupted, and one that stands still is a FAIL.
    """
    from trainproof.watch_command import WatchOptions, run_watch

    return run_watch(WatchOptions(**options))


def _steps(default: int, text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The option of how many optimizer steps are run."""
    return click.option("--steps", default=default, type=click.IntRange(min=1), show_default=True, help=text)


_set = click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A setting that the factory is given.")


@app.command()
@click.argument("inputs", nargs=-1, required=True, metavar="JOB|LOG LOG|demo")
@_steps(12, "Optimizer steps of the uninterrupted run.")
@click.option("--at", type=click.IntRange(min=1), help="The step at which it is interrupted; default: half of them.")
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="Leave out one part after the other, for N seeds: a table."
)
@_set
@_reporting
def resume(**options: Any) -> int:
    """Prove that a run goes on after an interruption as if there had been none, or name what is missing.

    JOB is FILE.py:FUNCTION, a function that makes the training; `demo` is a built-in one. It is run, interrupted,
    resumed in a fresh process, and compared bit for bit. Two LOGs are an uninterrupted run's and a resumed one's.
    """
    from trainproof.resume_command import run_resume

    own = {name: options.pop(name) for name in ("inputs", "steps", "at", "given", "seeds")}
    return run_resume(**own, shared=options)


@app.command("record-check")
@click.argument("job", metavar="JOB")
@_steps(10, "Optimizer steps of each of the two runs.")
@_set
@_reporting
def record_check(job: str, steps: int, given: tuple[str, ...], **options: Any) -> int:
    """Run a JOB (FILE.py:FUNCTION) twice: can it be replayed at all? Names the first tensor that differs."""
    from trainproof.resume_command import run_check

    return run_check(job, steps, given, options)


@app.command()
@click.argument("job", metavar="JOB|SCRIPT")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT]...")
@click.option("--out", required=True, metavar="FOLDER", help="Where the recording goes.")
@_steps(100, "Optimizer steps of a JOB.")
@click.option("--checkpoint-every", default=50, type=click.IntRange(min=0), show_default=True, metavar="STEPS")
@click.option(
    "--eval-every",
    default=0,
    type=click.IntRange(min=0),
    metavar="STEPS",
    help="Record the held-out loss of a JOB with evaluate().",
)
@click.option(
    "--keyed", type=int, metavar="SEED", help="Draw the randomness of each batch from its number: bisect needs it."
)
@click.option("--hashes/--no-hashes", default=True, show_default=True, help="Hash every parameter after every step.")
@click.option(
    "--ranks",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Processes of a JOB that trains on several.",
)
@_set
def record(**options: Any) -> int:
    """Record a training: data order, numbers, hashes, and checkpoints from which it can be replayed.

    JOB is FILE.py:FUNCTION, a function that makes the training. A SCRIPT is run as it is, and records itself by
    trainproof.Recorder(os.environ["TRAINPROOF_RUN"], ...); ARGUMENTs are the script's.
    """
    from trainproof.replay_command import run_record

    return run_record(**options)


@app.command()
@click.argument("run", metavar="RUN")
@click.option("--finding", metavar="CODE[@STEP]", help="Prove this finding; default: the first.")
@click.option("--steps", metavar="FIRST-LAST", help="Replay these steps, whatever was found.")
@click.option("--job", metavar="JOB", help="Where the job is now; default: where it was recorded.")
@click.option("--plan", "plan_file", metavar="FILE", help="Write the list of batches to leave out.")
@click.option("--cause", is_flag=True, help="Seek what a confirmed finding is owed to: other data, checkpoints, rates.")
@_reporting
def replay(**options: Any) -> int:
    """Run a segment of a recorded run again, twice, and say whether it comes out bit for bit as it was recorded."""
    from trainproof.replay_command import run_replay

    own = {name: options.pop(name) for name in ("run", "finding", "steps", "job", "plan_file", "cause")}
    return run_replay(**own, shared=options)


@app.command()
@click.argument("run", metavar="RUN")
@click.option("--bad", type=int, metavar="STEP", help="The first bad evaluation; default: the change-point.")
@click.option("--budget", default=100, show_default=True, metavar="N", help="Replays at most.")
@click.option("--job", metavar="JOB", help="Where the job is now; default: where it was recorded.")
@click.option(
    "--forensic", is_flag=True, help="RUN is a folder of checkpoints alone; the order of the data is unknown."
)
@click.option("--evidence", metavar="FILE", help="Write every counterfactual as JSON.")
@click.option("--try", "attempt", metavar="JSON", help="Do one counterfactual again, as a report names it.")
@_set
@_reporting
def bisect(**options: Any) -> int:
    """Find what made a recorded run collapse, by experiment: checkpoint, shard, batch, sample."""
    from trainproof.bisect_command import BisectOptions, run_bisect

    own = BisectOptions(**{name: options.pop(name) for name in BisectOptions._fields})
    return run_bisect(own, options)


@app.group()
def baseline() -> None:
    """Keep trusted runs as small JSON summaries, to be committed beside the code."""


_store = click.option(
    "--store", default="trainproof-baselines", show_default=True, metavar="DIR", help="Where they are."
)


@baseline.command("add")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--name", required=True, help="The baseline's name; further runs (seeds) are added to it.")
@click.option("--replace", is_flag=True, help="Forget the runs that it has.")
@click.option(
    "--format", "format_name", metavar="NAME", help="Read the logs as this format; default: by their content."
)
@click.option(
    "--map", "mapping", multiple=True, metavar="OURS=THEIRS", help="The log's name of a metric: loss=my_loss."
)
@_store
def baseline_add(**options: Any) -> int:
    """Add runs that pass to a baseline; a run that fails is refused."""
    from trainproof.compare_command import add_baseline

    return add_baseline(**options)


@baseline.command("list")
@_store
def baseline_list(store: str) -> int:
    """List the baselines and what they were made from."""
    from trainproof.compare_command import list_baselines

    return list_baselines(store)


@baseline.command("show")
@click.argument("name")
@_store
def baseline_show(name: str, store: str) -> int:
    """Show what a baseline was made from."""
    from trainproof.compare_command import show_baseline

    return show_baseline(name, store)


@baseline.command("remove")
@click.argument("name")
@_store
def baseline_remove(name: str, store: str) -> int:
    """Remove a baseline."""
    from trainproof.compare_command import remove_baseline

    return remove_baseline(name, store)


@app.command()
@click.argument("paths", nargs=-1, required=True, metavar="DATA...")
@click.option(
    "--eval", "held_out", multiple=True, metavar="DATA", help="Data of the evaluation side; default: by names."
)
@click.option(
    "--kind", type=click.Choice(["speech", "text", "chat", "preference"]), help="What the data is; default: by content."
)
@click.option("--max-length", type=click.IntRange(1), metavar="N", help="Tokens of the trainer's context.")
@click.option("--tokenizer", metavar="FILE", help="tokenizer.json or a SentencePiece model, to count tokens.")
@click.option("--rejects", metavar="FILE", help="Write every bad record with its reason there, as JSON lines.")
@click.option("--sample-rate", type=click.IntRange(1), metavar="HZ", help="What the trainer is configured for.")
@click.option("--trainer", type=click.Choice(TRAINERS), help="Tell what this trainer leaves out, cuts or stops at.")
@click.option("--language", metavar="CODE", help="Of the texts, where the trainer's limits depend on it: en.")
@click.option("--near/--no-near", default=True, show_default=True, help="Look for near duplicates.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes; default: one a processor.")
@click.option("--shard", metavar="I/N", help="Work on this share only, and write what was found to --partial.")
@click.option("--partial", metavar="FILE", help="Where a shard goes; `trainproof merge` judges all shards.")
@click.option(
    "--resume", metavar="FOLDER", help="Keep what was found there as the work goes; after a kill, go on from there."
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Who runs the processes: ray is Ray Data.",
)
@_reporting
def data(**options: Any) -> int:
    """Judge data before training: what is malformed, empty, odd, repeated, leaked or lost.

    DATA is a file (JSONL, JSON, CSV, TSV, Parquet, Arrow or text; also .gz, .xz or .zst), a folder, or a quoted glob; all of
    them also in an object store, such as s3://bucket/folder.
    """
    from trainproof.preflight_command import DataOptions, run_data

    own = {name: options.pop(name) for name in DataOptions._fields}
    return run_data(DataOptions(**own), options)


@app.command()
@click.argument("partials", nargs=-1, required=True, metavar="PARTIAL...")
@click.option("--rejects", metavar="FILE", help="Write every bad record with its reason there, as JSON lines.")
@_reporting
def merge(partials: tuple[str, ...], rejects: str | None, **options: Any) -> int:
    """Judge data from the partials of all its shards: the report is that of one process."""
    from trainproof.preflight_command import run_merge

    return run_merge(partials, rejects, options)


@app.command()
@click.argument("spec", metavar="BATCH")
@click.option("--ignore-index", type=int, default=-100, show_default=True, help="The label that the loss ignores.")
@click.option("--eos", type=int, metavar="ID", help="The end token.")
@click.option("--pad", type=int, metavar="ID", help="The padding token.")
@click.option("--shift", type=click.Choice(["model", "data"]), help="Who shifts labels against inputs.")
@click.option(
    "--loss",
    type=click.Choice(["classes", "ctc", "binary", "regression"]),
    help="What the loss is; default: by the shapes of its arrays.",
)
@_reporting
def objective(
    spec: str, ignore_index: int, eos: int | None, pad: int | None, shift: str | None, loss: str | None, **options: Any
) -> int:
    """Judge what the loss is given: labels out of range, masked rows, shifts, ends that are never learned.

    BATCH is a .npz or .safetensors file with labels, and logits and input_ids where there are any; or FILE.py:FUNCTION, which is run
    and returns (logits, labels) or a dict. Classes may be the last dimension of the logits or, as PyTorch has them, the second.
    """
    from trainproof.preflight_command import run_objective

    return run_objective(spec, ignore_index, eos, pad, shift, loss, options)


@app.command()
@click.argument("model", metavar="TOKENIZER")
@click.argument("texts", nargs=-1, metavar="[TEXTS]...")
@click.option("--base", metavar="TOKENIZER", help="The tokenizer of the base model.")
@_reporting
def tokenizer(model: str, texts: tuple[str, ...], base: str | None, **options: Any) -> int:
    """Judge a tokenizer: what it loses of TEXTS, its special tokens, its chat template.

    TOKENIZER is a tokenizer.json, a SentencePiece .model, a tiktoken file (split as GPT-2 splits), a vocabulary or character set of a
    speech model, or a folder with one of them; TEXTS are data as of `trainproof data`.
    """
    from trainproof.preflight_command import run_tokenizer

    return run_tokenizer(model, texts, base, options)


@app.command()
@click.option(
    "--module", "modules", multiple=True, metavar="NAME", help="A module that the run imports, such as torch."
)
@click.option("--folder", default=".", show_default=True, metavar="DIR", help="Where the run writes to.")
@click.option("--need-memory", "memory", type=click.FloatRange(0), metavar="GIB", help="Memory that the run needs.")
@click.option("--need-disk", "disk", type=click.FloatRange(0), metavar="GIB", help="Space that the run needs.")
@click.option("--need-gpu", "gpu", type=click.FloatRange(0), metavar="GIB", help="GPU memory that the run needs.")
@click.option("--checkpoint-size", "checkpoint", type=click.FloatRange(0), metavar="GIB", help="Of one checkpoint.")
@click.option("--checkpoints", type=click.IntRange(1), default=1, show_default=True, help="Checkpoints that are kept.")
@_reporting
def env(modules: tuple[str, ...], folder: str, **options: Any) -> int:
    """Judge the machine before a run: imports, memory, disk, GPU, limits, clock.

    Each import happens in a process of its own, so that an error, a crash and a hang are told apart.
    """
    from trainproof.preflight_command import run_env

    needs = {name: options.pop(name) for name in ("memory", "disk", "gpu", "checkpoint", "checkpoints")}
    return run_env(modules, folder, needs, options)


@app.command()
@click.argument("code")
def rule(code: str) -> int:
    """Explain the rule CODE (TP203, or its name): what it sees, why it matters, its limits, its traps."""
    from trainproof.command import print_rule

    return print_rule(code)


@app.command()
def rules() -> int:
    """List all rules."""
    from trainproof.command import print_rules

    return print_rules()


def main() -> None:
    """The entry point: every error is one line; TRAINPROOF_DEBUG=1 shows the traceback of an unexpected one."""
    sys.exit(_run())


def _run() -> int:
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        if not sys.warnoptions:  # numpy's remarks on infinities in a log are no news to whoever logged them
            warnings.simplefilter("ignore", RuntimeWarning)
        return _invoke()


def _invoke() -> int:
    from trainproof.errors import TrainproofError

    try:
        with app.make_context("trainproof", sys.argv[1:]) as context:  # app.main would answer Ctrl-C with an empty line
            return int(app.invoke(context))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _fail(error.format_message())
    except TrainproofError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("TRAINPROOF_DEBUG"):
            raise
        return _fail(
            f"internal error ({type(error).__name__}: {error}); please report it; run with TRAINPROOF_DEBUG=1 to see it"
        )


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning is one line too, such as that a plug-in is broken."""
    from trainproof.output import tell

    tell(str(message))


def _fail(message: str) -> int:
    from trainproof.output import tell

    tell(message)
    return 2
