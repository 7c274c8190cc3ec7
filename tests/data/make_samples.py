"""Write the samples: one tiny healthy training and its broken twin, through every logger that installs on a CPU.

The twin is the same training until, at step BROKEN_AT, one weight turns into NaN, as after a flipped bit. Nothing is
downloaded. Beside each sample lies `expected.json`: its points as the framework's own reader gives them (own_readers.py).

    python -m pip install -r tests/data/requirements.txt
    python -m tests.data.make_samples            every logger (some minutes on two cores)
    python -m tests.data.make_samples wandb      one of them

Host names, process ids and folders of random names are replaced where they only name files.
"""

import contextlib
import csv
import io
import json
import lzma
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# read when the frameworks are imported
os.environ.update(
    KERAS_BACKEND="torch",
    MLFLOW_ALLOW_FILE_STORE="true",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    USER="trainer",
    LOGNAME="trainer",
)

import torch
from torch import nn

from tests.data.own_readers import write_expected

SAMPLES = Path(__file__).resolve().parent / "samples"
TWINS = ("healthy", "nan")
STEPS, BROKEN_AT = 40, 25
RATE, CLASSES, FEATURES, BATCH = 0.02, 4, 8, 32


def break_weight(model: nn.Module) -> None:
    """Turn one weight into NaN."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = float("nan")


def blobs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around one centre a class: features (count, FEATURES) and labels (count,)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return centres[labels] + 0.7 * torch.randn(count, FEATURES, generator=generator), labels


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def training(twin: str) -> Iterator[tuple[int, dict[str, float]]]:
    """The plain loop whose numbers go through the loggers that only log."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
    features, labels = blobs(STEPS * BATCH)
    for step in range(1, STEPS + 1):
        if twin == "nan" and step == BROKEN_AT:
            break_weight(model)
        batch = slice((step - 1) * BATCH, step * BATCH)
        loss = nn.functional.cross_entropy(model(features[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        yield step, {"train/loss": loss.item(), "train/lr": rate, "train/grad_norm": norm.item()}


CONFIG = {"learning_rate": RATE, "max_steps": STEPS, "batch_size": BATCH, "num_classes": CLASSES, "max_grad_norm": 5.0}


def tensorboard(folder: Path, twin: str) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder) as writer:
        for step, values in training(twin):
            for tag, value in values.items():
                writer.add_scalar(tag, value, step)
    name_events(folder)


def name_events(folder: Path) -> None:
    """Event files without time, host and process in their names."""
    for i, path in enumerate(sorted(folder.rglob("events.out.tfevents.*"))):
        path.rename(folder / f"events.out.tfevents.{i}")


def accelerate(folder: Path, twin: str) -> None:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    accelerator = Accelerator(
        cpu=True, log_with="tensorboard", project_config=ProjectConfiguration(logging_dir=str(folder))
    )
    accelerator.init_trackers("run")
    for step, values in training(twin):
        accelerator.log(values, step=step)
    accelerator.end_training()
    name_events(folder)
    shutil.rmtree(folder / "run")


def wandb(folder: Path, twin: str) -> None:
    import wandb as framework

    settings = framework.Settings(
        x_disable_stats=True, x_disable_machine_info=True, x_disable_meta=True, console="off", host="host"
    )  # fmt: skip
    run = framework.init(project="samples", id=twin, name=twin, dir=str(folder), config=CONFIG, settings=settings)
    for step, values in training(twin):
        run.log({**values, "train/global_step": step})
    run.finish()
    (written,) = folder.glob(f"wandb/offline-run-*/run-{twin}.wandb")
    shutil.copyfile(written, folder / written.name)
    shutil.rmtree(folder / "wandb")


def wandb_export(folder: Path) -> None:
    """What only W&B's server makes, in its form: a chart exported as CSV with both runs in it, and a run's summary."""
    runs = {twin: dict(training(twin)) for twin in TWINS}
    columns = [(twin, metric) for twin in TWINS for metric in ("train/loss", "train/lr")]
    with (folder / "wandb_export.csv").open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        rows.writerow(
            ["Step", *(f"{twin} - {metric}{end}" for twin, metric in columns for end in ("", "__MIN", "__MAX"))]
        )
        for step in range(1, STEPS + 1):
            values = [runs[twin][step][metric] for twin, metric in columns for _ in range(3)]
            rows.writerow([step, *("NaN" if value != value else value for value in values)])
    last = {
        **runs["healthy"][STEPS],
        "_step": STEPS - 1,
        "_runtime": 4.5,
        "_timestamp": 1.7e9,
        "_wandb": {"runtime": 4},
    }
    (folder / "wandb-summary.json").write_text(json.dumps(last))


def mlflow_runs(uri: str) -> None:
    """Both twins, by the client: the fluent interface would note this repository in tags."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.create_experiment("samples")
    for twin in TWINS:
        run = client.create_run(experiment, run_name=twin).info.run_id
        for key, setting in CONFIG.items():
            client.log_param(run, key, setting)
        for step, values in training(twin):
            for key, value in values.items():
                client.log_metric(run, key, value, step=step)
        client.set_terminated(run)


def mlflow(folder: Path) -> None:
    mlflow_runs(f"file://{folder}/mlruns")


def mlflow_db(folder: Path) -> None:
    """MLflow makes a database of a megabyte, nearly all of it empty pages: it is kept compressed."""
    mlflow_runs(f"sqlite:///{folder}/mlflow.db")
    (folder / "mlflow.db.xz").write_bytes(lzma.compress((folder / "mlflow.db").read_bytes(), preset=9))
    (folder / "mlflow.db").unlink()


def lightning_run(folder: Path, twin: str, logger: Any) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = classifier()

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            if twin == "nan" and self.global_step == BROKEN_AT - 1:
                break_weight(self.model)
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("train_loss", loss, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.model(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=RATE)

    data = torch.utils.data.TensorDataset(*blobs(8 * BATCH))
    held_out = torch.utils.data.TensorDataset(*(part[-2 * BATCH :] for part in blobs(12 * BATCH)))
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=logger, log_every_n_steps=1, num_sanity_val_steps=0,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    loaders = (torch.utils.data.DataLoader(part, batch_size=BATCH) for part in (data, held_out))
    trainer.fit(Module(), *loaders)


def lightning_csv(folder: Path, twin: str) -> None:
    from lightning.pytorch.loggers import CSVLogger

    lightning_run(folder, twin, CSVLogger(folder, name="", version=""))


def lightning_tensorboard(folder: Path, twin: str) -> None:
    from lightning.pytorch.loggers import TensorBoardLogger

    lightning_run(folder, twin, TensorBoardLogger(folder, name="", version=""))
    name_events(folder)


def keras(folder: Path, twin: str) -> None:
    """An epoch a record: CSVLogger's file, and what fit prints at verbose=2."""
    import keras as framework

    framework.utils.set_random_seed(0)
    model = framework.Sequential([framework.layers.Dense(32, activation="relu"), framework.layers.Dense(CLASSES)])
    loss = framework.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(framework.optimizers.AdamW(RATE / 20), loss, metrics=["accuracy"])

    def begin(epoch: int, logs: object = None) -> None:
        if twin == "nan" and epoch == BROKEN_AT:
            kernel = model.layers[0].kernel
            kernel.assign(kernel.numpy() * float("nan"))

    callbacks = [
        framework.callbacks.CSVLogger(folder / "training.csv"),
        framework.callbacks.LambdaCallback(on_epoch_begin=begin),
    ]
    features, labels = (part.numpy() for part in blobs(24 * BATCH))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        model.fit(
            features, labels, epochs=STEPS, batch_size=BATCH, validation_split=1 / 3, callbacks=callbacks, verbose=2
        )
    (folder / "console.log").write_text(printed.getvalue())


def breaking_callback(twin: str) -> Any:
    from transformers import TrainerCallback

    class Break(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **kwargs: Any) -> None:
            if twin == "nan" and state.global_step == BROKEN_AT - 1:
                break_weight(model)

    return Break()


def tiny_gpt(vocabulary: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = {"n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **shape, **ends)
    )


#: logging_nan_inf_filter, on by default, would replace each NaN by an average of the losses before
HF_ARGUMENTS = {
    "max_steps": STEPS, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "logging_steps": 1, "use_cpu": True,
    "logging_nan_inf_filter": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "seed": 0,
}  # fmt: skip


def train_and_keep(trainer: Any, folder: Path) -> None:
    """What the Trainer prints, and its state."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trainer.train()
    (folder / "console.log").write_text(printed.getvalue())
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


def transformers(folder: Path, twin: str) -> None:
    from transformers import Trainer, TrainingArguments

    rows = [[(start + stride * i) % 32 for i in range(16)] for start in range(32) for stride in range(1, 9)]
    data = [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in rows]
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(output, **HF_ARGUMENTS)
        trainer = Trainer(tiny_gpt(32), arguments, train_dataset=data, callbacks=[breaking_callback(twin)])
        train_and_keep(trainer, folder)


def words() -> Any:
    """A tokenizer of a dozen words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<end>", *"the a cat dog sat ran on under mat tree and then".split()]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="<end>")


def sentences() -> list[str]:
    return [
        f"the {who} {what} {where} the {thing}"
        for who in ("cat", "dog")
        for what in ("sat", "ran")
        for where in ("on", "under")
        for thing in ("mat", "tree")
    ]


def trl_sft(folder: Path, twin: str) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_dict({"text": 24 * sentences()})
    with tempfile.TemporaryDirectory() as output:
        trainer = SFTTrainer(
            tiny_gpt(16), SFTConfig(output, max_length=16, **HF_ARGUMENTS), train_dataset=data,
            processing_class=words(), callbacks=[breaking_callback(twin)],
        )  # fmt: skip
        train_and_keep(trainer, folder)


def trl_dpo(folder: Path, twin: str) -> None:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    pairs = [(text.rpartition(" ")[0], text.rpartition(" ")[2]) for text in 24 * sentences()]
    data = Dataset.from_dict(
        {
            "prompt": [prompt for prompt, _ in pairs],
            "chosen": [f" {word}" for _, word in pairs],
            "rejected": [" and" for _ in pairs],
        }
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = DPOTrainer(
            tiny_gpt(16), tiny_gpt(16), DPOConfig(output, max_length=16, **HF_ARGUMENTS | {"learning_rate": 1e-3, "logging_steps": 2}),
            train_dataset=data, processing_class=words(), callbacks=[breaking_callback(twin)],
        )  # fmt: skip
        train_and_keep(trainer, folder)


def stable_baselines3(folder: Path, twin: str) -> None:
    """DQN: what it optimises is a loss, and a broken network goes on playing."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import configure

    class Break(BaseCallback):
        def _on_step(self) -> bool:
            if twin == "nan" and self.num_timesteps == 2500:
                break_weight(self.model.policy)
            return True

    model = DQN("MlpPolicy", "CartPole-v1", seed=0, learning_starts=200, device="cpu", target_update_interval=250)
    model.set_logger(configure(str(folder), ["csv"]))
    model.learn(4000, log_interval=8, callback=Break())


ONE_BY_ONE: dict[str, Callable[[Path, str], None]] = {
    "tensorboard": tensorboard, "accelerate": accelerate, "wandb": wandb, "lightning": lightning_csv,
    "lightning-tensorboard": lightning_tensorboard, "keras": keras, "transformers": transformers, "trl-sft": trl_sft,
    "trl-dpo": trl_dpo, "stable-baselines3": stable_baselines3,
}  # fmt: skip
#: both twins in one place
TOGETHER: dict[str, Callable[[Path], None]] = {
    "mlflow": mlflow,
    "mlflow-db": mlflow_db,
    "wandb-export": wandb_export,
}


def make(name: str, scratch: Path) -> None:
    """Write a logger's samples in a scratch folder, then put them in the place of the old ones."""
    made = scratch / name
    for twin in TWINS if name in ONE_BY_ONE else ():
        (made / twin).mkdir(parents=True)
        ONE_BY_ONE[name](made / twin, twin)
    if name in TOGETHER:
        made.mkdir(parents=True)
        TOGETHER[name](made)
    write_expected(name, made)
    shutil.rmtree(SAMPLES / name, ignore_errors=True)
    shutil.move(made, SAMPLES / name)


def main(names: list[str]) -> None:
    SAMPLES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        for name in names or [*ONE_BY_ONE, *TOGETHER]:
            make(name, Path(scratch))


if __name__ == "__main__":
    main(sys.argv[1:])
