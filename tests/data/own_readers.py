"""The samples as the frameworks' own readers give them: what our readers have to find in them, value by value."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: metric -> (step, value) in the order of the log
Run = dict[str, list[tuple[int, float]]]
EXPECTED = "expected.json"


def add(run: Run, step: Any, values: dict[str, Any]) -> None:
    """The numbers of one record."""
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            run.setdefault(name, []).append((int(step), float(value)))


def pandas_table(path: Path, step: str) -> Run:
    """A CSV by pandas; cells are read as text, since pandas has one word for a blank cell and a NaN."""
    import pandas as pd

    run: Run = {}
    for row in pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"):
        add(run, float(row[step]), {str(name): float(cell) for name, cell in row.items() if name != step and cell})
    return run


def trainer_state(path: Path) -> Run:
    """The records of the history but the closing one, which speaks of the whole run."""
    run: Run = {}
    for record in json.loads(path.read_text())["log_history"]:
        if "train_runtime" not in record:
            add(run, record["step"], {name: value for name, value in record.items() if name != "step"})
    return run


def event_accumulator(folder: Path) -> Run:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0, TENSORS: 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def wandb_data_store(path: Path) -> Run:
    """The history; its own names begin with "_"."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    run: Run = {}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            add(
                run,
                items["train/global_step"],
                {name: value for name, value in items.items() if not name.startswith("_")},
            )
    run.pop("train/global_step")
    return run


def mlflow_client(uri: str) -> dict[str, Run]:
    """Every run of the experiment "samples" by name."""
    os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_DISABLE_TELEMETRY="true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("samples")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return {
        run.info.run_name: {
            key: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]
            for key in sorted(run.data.metrics)
        }
        for run in runs
    }


def mlflow_folders(kept: Path) -> dict[str, Run]:
    """The runs of a tracking folder. The client takes a run without its empty folders, which git does not keep, for damaged."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(kept, Path(folder, "mlruns")))
        for meta in copy.glob("*/*/meta.yaml"):
            (meta.parent / "artifacts").mkdir(exist_ok=True)
        return mlflow_client(f"file://{copy}")


def mlflow_database(packed: Path) -> dict[str, Run]:
    """The runs of a compressed database."""
    import lzma

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mlflow.db")
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        return mlflow_client(f"sqlite:///{path}")


def exported_chart(path: Path) -> dict[str, Run]:
    """The columns of each run, without those of their extremes."""
    table = pandas_table(path, "Step")
    names = [name for name in table if not name.endswith(("__MIN", "__MAX"))]
    runs: dict[str, Run] = {name.partition(" - ")[0]: {} for name in names}
    for name in names:
        twin, _, metric = name.partition(" - ")
        runs[twin][metric] = table[name]
    return runs


#: logger -> the file (or folder) of a twin's log, and its reader
READERS: dict[str, tuple[str, Callable[[Path], Run]]] = {
    "tensorboard": ("", event_accumulator),
    "accelerate": ("", event_accumulator),
    "lightning-tensorboard": ("", event_accumulator),
    "wandb": ("run-{twin}.wandb", wandb_data_store),
    "lightning": ("metrics.csv", lambda path: pandas_table(path, "step")),
    "keras": ("training.csv", lambda path: pandas_table(path, "epoch")),
    "stable-baselines3": ("progress.csv", lambda path: pandas_table(path, "time/total_timesteps")),
    "transformers": ("trainer_state.json", trainer_state),
    "trl-sft": ("trainer_state.json", trainer_state),
    "trl-dpo": ("trainer_state.json", trainer_state),
}


def own_reading(name: str, folder: Path) -> dict[str, Run]:
    """twin -> its points, of the samples of one logger."""
    if name == "mlflow":
        return mlflow_folders(folder / "mlruns")
    if name == "mlflow-db":
        return mlflow_database(folder / "mlflow.db.xz")
    if name == "wandb-export":
        return exported_chart(folder / "wandb_export.csv")
    file, reader = READERS[name]
    return {twin: reader(folder / twin / file.format(twin=twin)) for twin in ("healthy", "nan")}


def written(runs: dict[str, Run]) -> dict[str, dict[str, list[list[int | float | str]]]]:
    """As JSON has it: what is not finite as text."""
    return {
        twin: {
            name: [[step, value if math.isfinite(value) else str(value)] for step, value in points]
            for name, points in sorted(run.items())
        }
        for twin, run in sorted(runs.items())
    }


def write_expected(name: str, folder: Path) -> None:
    lines = [
        f" {json.dumps(twin)}: {json.dumps(run, separators=(',', ':'))}"
        for twin, run in written(own_reading(name, folder)).items()
    ]
    (folder / EXPECTED).write_text("{\n" + ",\n".join(lines) + "\n}\n")
