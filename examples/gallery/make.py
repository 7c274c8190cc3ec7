"""Train the gallery: real runs of a small transformer, one healthy and one for each fault.

A byte-level GPT-2 (4 layers, d = 128) is trained once on text that ships with Python, then fine-tuned with LoRA on
other text, once in good health and once with each fault. Everything runs on the CPU with the stock Trainer of
transformers and downloads nothing. One fine-tune takes about a minute on two cores, the base a few.

    python examples/gallery/make.py all                 every run, three seeds each
    python examples/gallery/make.py lr_hot --seed 43    one run
    python examples/gallery/make.py table               the numbers of the logs that are there, as Markdown

Weights stay in the work directory; only logs, configurations and metadata are written to the gallery.
"""

import argparse
import contextlib
import json
import platform
import shutil
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from knobs import BASE, BASE_LEARNING_RATE, BASE_SEED, FINE_TUNE, LOOPS, RUNS, SEEDS, STOCK, Loop, changed
from observe import HEADER, observe, sentence, table_row

GALLERY = Path(__file__).resolve().parent
LOG = "trainer_state.json"
LOOP_LOG = "metrics.jsonl"
KEPT = (LOG, "config.json", "adapter_config.json")  # as the libraries wrote them; weights are not kept
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "numpy")


def home(run: str, seed: int) -> Path:
    """Where the files of a run live: the first seed in the run's own folder, the others below it."""
    folder = GALLERY / run
    return folder if seed == SEEDS[0] else folder / f"seed{seed}"


def keep(run: str, seed: int, output: Path, metadata: Mapping[str, object]) -> None:
    """Copy the log and the configurations out of the work directory and write the metadata beside them."""
    folder = home(run, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (output / name).exists():
            shutil.copyfile(output / name, folder / name)
    observed = {"observed": sentence(observe(folder / LOG))}
    text = json.dumps({**described(run, seed), **metadata, **observed}, indent=2)
    (folder / "metadata.json").write_text(text + "\n", encoding="utf-8")
    print(f"{run} seed {seed}: {observed['observed']}", flush=True)


def described(run: str, seed: int) -> dict[str, object]:
    """What every metadata file says first: which run this is, and what made it."""
    return {
        "run": run,
        "seed": seed,
        "command": f"python examples/gallery/make.py {run}" + ("" if run == "base" else f" --seed {seed}"),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "architecture": platform.machine(),
    }


def make_base() -> None:
    """Train the base in the working directory, unless an earlier call left it there, and keep its log."""
    import corpus
    import training

    output = Path("base")
    if not (output / LOG).exists():
        training.pretrain_base(output)
    settings = BASE._asdict() | {"learning_rate": BASE_LEARNING_RATE, "max_grad_norm": 1.0}
    text = {"name": "pydoc_data.topics", "sha256": corpus.digest(corpus.prose())}
    keep("base", BASE_SEED, output, {"settings": settings, "text": text})


def make_run(run: str, seed: int) -> None:
    """Fine-tune the base once and keep the log."""
    import corpus
    import training

    knobs = RUNS[run]
    output = Path(f"{run}-seed{seed}")
    training.fine_tune(Path("base"), output, knobs, seed)
    text = {"name": list(corpus.SOURCE_MODULES), "sha256": corpus.digest(corpus.source_code())}
    metadata = {"knobs": knobs._asdict(), "changed": changed(knobs), "settings": FINE_TUNE._asdict(), "text": text}
    keep(run, seed, output, metadata)


def make_loop(run: str, seed: int) -> None:
    """Run a plain loop once and write its log, what it declares, and its metadata straight into the gallery."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    loop = LOOPS[run]
    module, _, function = loop.made_by.partition(":")
    base = {"base": Path("base")} if function in ("direct", "bucketed") else {}
    records = list(getattr(import_module(module), function)(seed, **base, **loop.changed))
    folder = home(run, seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({k: v if k == "step" else float(f"{v:.6g}") for k, v in record.items()}) for record in records]
    (folder / LOOP_LOG).write_text("\n".join(lines) + "\n", encoding="utf-8")
    declare(run, seed, loop)
    print(f"{run} seed {seed}: {len(records)} records, the last one {lines[-1]}", flush=True)


def make_stock(run: str, seed: int) -> None:
    """Train once with a stock trainer and keep the log that it wrote."""
    loop = STOCK[run]
    output = Path(f"{run}-seed{seed}")
    module, _, function = loop.made_by.partition(":")
    base = {"base": Path("base")} if module == "policies" else {}
    getattr(import_module(module), function)(seed, output, **base, **loop.changed)
    folder = home(run, seed)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(output / LOG, folder / LOG)
    declare(run, seed, loop)
    print(f"{run} seed {seed}: trained", flush=True)


def declare(run: str, seed: int, loop: Loop) -> None:
    """Write what the run declares, and its metadata, beside its log."""
    folder = home(run, seed)
    if loop.declared:
        (folder / "config.json").write_text(json.dumps(dict(loop.declared), indent=2) + "\n", encoding="utf-8")
    metadata = {**described(run, seed), "made_by": loop.made_by, "changed": dict(loop.changed)}
    if loop.made_by.startswith("policies:"):
        metadata["trl"] = version("trl")
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def print_table() -> None:
    """The numbers of every log that is there, as a Markdown table."""
    print(HEADER)
    for run, seed in [("base", BASE_SEED), *((run, seed) for run in RUNS for seed in SEEDS)]:
        log = home(run, seed) / LOG
        if log.exists():
            print(table_row(run, seed, observe(log)))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=["all", "base", *RUNS, *LOOPS, *STOCK, "table"], help="what to make")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append", help="only this seed (repeatable)")
    default = Path(tempfile.gettempdir()) / "trainproof-gallery"
    parser.add_argument("--work", type=Path, default=default, help="where weights go (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    """Make what the command line asks for. Training runs inside the work directory, so that logs hold no path."""
    wanted = parse()
    if wanted.run == "table":
        print_table()
        return
    wanted.work.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(wanted.work):
        make_base()
        for run in (*RUNS, *LOOPS, *STOCK) if wanted.run == "all" else [wanted.run]:
            make = make_loop if run in LOOPS else make_stock if run in STOCK else make_run
            for seed in [] if run == "base" else wanted.seed or SEEDS:
                make(run, seed)


if __name__ == "__main__":
    main()
