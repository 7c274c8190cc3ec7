"""Collapses of scripts that record themselves, in loops of their own and of frameworks, and of jobs on two ranks: the shard is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, runner
from tests.replay import jobs
from trainproof.record.changes import Change, Level
from trainproof.record.tape import Tape
from trainproof.replay.fresh import RanksBench
from trainproof.replay.job import Target

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

#: a classifier of two rings of points in 4 shards, met in one seeded order; late samples of shard-2 are scaled and have the wrong label
TASK = """
import os, sys, torch, trainproof
from torch import nn

torch.manual_seed(0)
draw = torch.Generator().manual_seed(1)
labels = torch.randint(0, 2, (640,), generator=draw)
angle = 6.2832 * torch.rand(640, generator=draw)
points = torch.stack([(1.0 + labels) * angle.cos(), (1.0 + labels) * angle.sin()], 1)
held_out = points[:160].clone(), labels[:160].clone()
order = [(i * 37) % 640 for i in range(640)]

def shard_of(sample):
    return f"shard-{sample // 160}"

for sample in order[START:] if "healthy" not in sys.argv else ():
    if shard_of(sample) == "shard-2":
        points[sample] *= 1000.0
        labels[sample] = 1 - labels[sample]

rows = [{"points": points[i], "labels": labels[i], "ids": i} for i in order]
held = [{"points": x, "labels": y} for x, y in zip(*held_out)]

class Rings(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.05), nn.Linear(32, 2))

    def forward(self, points, labels):
        scores = self.net(points)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

recording = {"checkpoint_every": 10, "keyed": 0, "shard_of": shard_of}
""".replace("START", "400")

LOOP = (
    TASK
    + """
model = Rings()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rec = trainproof.Recorder(os.environ["TRAINPROOF_RUN"], model=model, optimizer=optimizer, **recording)
for batch in rec.batches(torch.utils.data.DataLoader(rows, 8)):
    with rec.step() as step:
        loss = model(batch["points"], batch["labels"])["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step.loss(loss)
    if rec.steps % 5 == 0:
        model.eval()
        with torch.no_grad():
            rec.evaluated(eval_loss=model(*held_out)["loss"].item())
        model.train()
"""
)

HF = (
    TASK
    + """
import transformers
from trainproof.integrations.hf_recorder import RecorderCallback

class Trainer(transformers.Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(rows)

arguments = transformers.TrainingArguments(
    output_dir="out", num_train_epochs=1, per_device_train_batch_size=8, learning_rate=0.05, optim="sgd", max_grad_norm=0,
    optim_args="momentum=0.9", lr_scheduler_type="constant", use_cpu=True, report_to=[], disable_tqdm=True, seed=0,
    remove_unused_columns=False, save_strategy="no", eval_strategy="steps", eval_steps=5, logging_steps=5,
    per_device_eval_batch_size=160,
)
trainer = Trainer(model=Rings(), args=arguments, train_dataset=rows, eval_dataset=held)
trainer.add_callback(RecorderCallback(trainer, os.environ["TRAINPROOF_RUN"], **recording))
trainer.train()
"""
)

LIGHTNING = (
    TASK
    + """
from lightning.pytorch import LightningModule, Trainer
from trainproof.integrations.lightning_recorder import RecorderCallback

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.rings = Rings()

    def training_step(self, batch, *_):
        return self.rings(batch["points"], batch["labels"])["loss"]

    def validation_step(self, batch, *_):
        self.log("val_loss", self.rings(batch["points"], batch["labels"])["loss"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    enable_checkpointing=False, val_check_interval=5, num_sanity_val_steps=0,
    callbacks=[RecorderCallback(os.environ["TRAINPROOF_RUN"], **recording)],
)
trainer.fit(Module(), torch.utils.data.DataLoader(rows, 8), torch.utils.data.DataLoader(held, 160))
"""
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capfd)


def recorded(tmp_path: Path, text: str, *arguments: str) -> Tape:
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "trainproof", "record", "train.py", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    done = subprocess.run(
        [*command, *arguments], cwd=tmp_path, check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return Tape(tmp_path / "run")


def cause(run: Run, folder: Path, *arguments: str) -> Any:
    evidence = folder.with_name("evidence.json")
    ran = run("bisect", str(folder), "--evidence", str(evidence), "--no-html", *arguments)
    assert ran.code == 1, ran.err
    return json.loads(evidence.read_text())["cause"]


@pytest.mark.parametrize("text", [LOOP, HF, LIGHTNING], ids=["loop", "transformers", "lightning"])
def test_the_shard_of_a_script_is_named(tmp_path: Path, run: Run, text: str) -> None:
    pytest.importorskip("lightning.pytorch" if text is LIGHTNING else "transformers" if text is HF else "torch")
    tape = recorded(tmp_path, text)
    assert (len(tape.steps), tape.samples()[3][0], len(tape.evaluations)) == (80, (248, "shard-1"), 16)
    kind, interval, shard, batches, samples, _ = cause(run, tape.folder)
    assert (kind, shard) == ("DATA", "shard-2")
    assert interval[0] >= 50  # the poisoned samples come from batch 50 on
    assert set(batches) <= set(range(50, 80))
    assert all(160 <= sample < 320 for sample in samples)


def test_on_two_ranks_a_change_is_made_on_each_and_rank_0_decides(tmp_path: Path, run: Run) -> None:
    command = ["record", f"{jobs.FILE}:divided", "--out", str(tmp_path / "run"), "--steps=55", "--ranks=2", "--keyed=0"]
    assert run(*command, "--checkpoint-every=40", "--eval-every=5").code == 0
    tape = Tape(tmp_path / "run")
    assert [len(some) for some in tape.samples().values()] == [8] * 55
    bench = RanksBench(tape, Target(f"{jobs.FILE}:divided", {}), Level(0.7), 10)
    poisoned = Change(shards=("shard-5",))
    assert bench.collapsed(40, 55, poisoned._replace(only=True))
    assert not bench.collapsed(40, 55, poisoned)
    assert bench.steps == 30


def test_a_healthy_script_names_nothing(tmp_path: Path, run: Run) -> None:
    tape = recorded(tmp_path, LOOP, "healthy")
    ran = run("bisect", str(tape.folder), "--no-html")
    assert ran.code == 0
    assert "the held-out loss did not collapse" in ran.out
