"""Scripts that record themselves, in loops of their own and of frameworks, are replayed bit for bit by running them again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, runner
from trainproof.record.fingerprint import code_of
from trainproof.record.goal import Goal
from trainproof.record.tape import Tape
from trainproof.replay.replaying import replay, segment_around

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

#: two generators in the data, an order of its own, dropout, accumulation, and a last step of an epoch that depends on the epoch
LOOP = """
import os, random, torch, trainproof

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {"x": torch.full((4,), i / 20.0) + random.random() + torch.rand(()), "ids": i}

torch.manual_seed(0)
random.seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
order = torch.Generator().manual_seed(5)
loader = torch.utils.data.DataLoader(Data(), 2, shuffle=True, generator=order)
rec = trainproof.Recorder(
    os.environ["TRAINPROOF_RUN"], model=model, optimizer=optimizer, scheduler=scheduler, checkpoint_every=3
)
for epoch in EPOCHS:
    for batch in rec.batches(loader):
        with rec.step() as step:
            loss = (model(batch["x"]) ** 2).mean()
            loss.backward()
            step.loss(loss)
            if rec.cursor % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
    scheduler.step()
    model[0].bias.data += 0.01 * epoch
    rec.evaluated(eval_loss=loss.item())
    with open("epochs", "a") as file:
        file.write(f"{epoch} ")
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capfd)


def recorded(tmp_path: Path, text: str) -> Tape:
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "trainproof", "record", str(tmp_path / "train.py"), "--out", str(tmp_path / "run")]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, env=_environment(root))
    assert done.returncode == 0, done.stderr
    return Tape(tmp_path / "run")


def _environment(root: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}


def same(tape: Tape, first: int, last: int) -> None:
    again = replay(tape, segment_around(tape, first, last))
    assert (again.mismatch, again.differences, again.repeatable) == (None, (), True)


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    tape = recorded(tmp_path, LOOP.replace("EPOCHS", "rec.epochs(4)"))
    assert tape.script is not None
    assert Path(tape.script.file) == tmp_path / "train.py"
    assert (len(tape.steps), list(tape.checkpoints())) == (20, [0, 3, 6, 9, 12, 15, 18])
    assert (tmp_path / "epochs").read_text() == "0 1 2 3 "
    same(tape, 14, 17)  # from step 12, in the third epoch
    same(tape, 16, 17)  # from step 15, the end of the third epoch
    # what comes at the end of an epoch is done only for those that are trained again
    assert (tmp_path / "epochs").read_text() == "0 1 2 3 2 2 "


def test_another_script_is_not_comparable(tmp_path: Path, run: Run) -> None:
    tape = recorded(tmp_path, LOOP.replace("EPOCHS", "range(2)"))
    same(tape, 7, 9)
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + "# later\n")
    ran = run("replay", str(tape.folder), "--steps", "1-3", "--output-format", "json", "--no-html")
    assert ran.code == 2
    assert ran.run["reason"].startswith("NOT COMPARABLE: code was ")
    (tmp_path / "train.py").unlink()
    ran = run("replay", str(tape.folder), "--steps", "1-3", "--no-html")
    assert ran.code == 2
    assert "is not there any more" in ran.err


def test_state_that_the_recorder_does_not_know_is_no_fault_of_the_machine(tmp_path: Path, run: Run) -> None:
    text = LOOP.replace("EPOCHS", "rec.epochs(2)").replace("model(batch", "(1 + 0.1 * rec_count[0]) * model(batch")
    text = text.replace("for epoch in", "rec_count = [0]\nfor epoch in").replace(
        "step.loss(loss)", "step.loss(loss); rec_count[0] += 1"
    )
    tape = recorded(tmp_path, text)
    same(tape, 1, 4)
    ran = run("replay", str(tape.folder), "--steps", "4-5", "--output-format", "json", "--no-html")
    assert ran.run["reason"].startswith("INCONCLUSIVE: ")
    assert "did not come back to where it was" in ran.run["findings"][0]["message"]


def test_a_script_that_does_not_record_any_more(tmp_path: Path, run: Run) -> None:
    tape = recorded(tmp_path, LOOP.replace("EPOCHS", "rec.epochs(1)"))
    header, _, rest = (tape.folder / "steps-0.jsonl").read_text().partition("\n")
    (tmp_path / "train.py").write_text("raise ValueError('gone')")
    changed = header.replace(tape.fingerprint["code"], code_of(tmp_path / "train.py"))
    (tape.folder / "steps-0.jsonl").write_text(f"{changed}\n{rest}")
    ran = run("replay", str(tape.folder), "--steps", "1-3", "--no-html")
    assert (ran.code, ran.err.splitlines()[-1].endswith("ended with code 1: ValueError: gone")) == (2, True)


def test_a_goal_is_for_the_first_recorder_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "goal").write_text(f'{{"out": "{tmp_path}", "start": "x", "until": 3, "expected": {{}}}}')
    monkeypatch.setenv("TRAINPROOF_REPLAY", str(tmp_path / "goal"))
    goal = Goal.of_environment()
    assert goal is not None
    assert Goal.of_environment() is None
    goal.end_if_done(2)
    with pytest.raises(SystemExit):
        goal.end_if_done(3)
    with pytest.raises(SystemExit):
        goal.check({"threads": 2})
    assert (tmp_path / "differences.json").read_text() == '["threads was None, is 2"]'


HF = """
import os, numpy as np, torch, transformers
from trainproof.integrations.hf_recorder import RecorderCallback

transformers.set_seed(3)
words = torch.randint(0, 17, (22, 8), generator=torch.Generator().manual_seed(1))

def rows(words):
    stacked = torch.stack(words)
    stacked[:, np.random.randint(8)] = 1
    stacked[:, int(torch.randint(8, ()))] = 2
    return {"input_ids": stacked, "labels": stacked.clone()}

config = transformers.LlamaConfig(
    vocab_size=17, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    attention_dropout=0.1, max_position_embeddings=8, bos_token_id=None, eos_token_id=None,
)
arguments = transformers.TrainingArguments(
    output_dir="out", max_steps=9, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-2,
    use_cpu=True, report_to=[], disable_tqdm=True, remove_unused_columns=False, save_steps=4, eval_strategy="steps",
    eval_steps=4, logging_steps=1,
)
model = transformers.LlamaForCausalLM(config)
data = list(words)
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:4], data_collator=rows)
trainer.add_callback(RecorderCallback(trainer, os.environ["TRAINPROOF_RUN"], checkpoint_every=2))
trainer.train()
"""


def test_the_trainers_own_loop(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tape = recorded(tmp_path, HF)
    assert (len(tape.steps), tape.steps[3]["cursor"], list(tape.evaluations)) == (9, 6, [4, 8, 9])
    saved = tmp_path / "out" / "checkpoint-4" / "trainer_state.json"
    before = saved.stat().st_mtime_ns
    same(tape, 5, 8)  # from step 4, in the second epoch
    assert saved.stat().st_mtime_ns == before


LIGHTNING = """
import os, random, torch
from lightning.pytorch import LightningModule, Trainer
from trainproof.integrations.lightning_recorder import RecorderCallback

torch.manual_seed(3)
random.seed(1)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.full((8,), i / 20.0) + random.random() + torch.rand(())

class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))

    def loss(self, x):
        return ((self.net(x) - x.sum(1, keepdim=True)) ** 2).mean()

    def training_step(self, batch, *_):
        return self.loss(batch)

    def validation_step(self, batch, *_):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

recorder = RecorderCallback(os.environ["TRAINPROOF_RUN"], checkpoint_every=2)
trainer = Trainer(
    max_steps=7, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    accumulate_grad_batches=2, default_root_dir="out", callbacks=[recorder],
)
loader = torch.utils.data.DataLoader(Data(), 4, shuffle=True)
trainer.fit(Regression(), loader, torch.utils.data.DataLoader(Data(), 4))
"""


def test_lightnings_own_loop(tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch")
    tape = recorded(tmp_path, LIGHTNING)
    assert (len(tape.steps), tape.steps[2]["cursor"]) == (7, 4)
    assert len(tape.evaluations) >= 2
    saved: Any = [path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")]
    same(tape, 5, 6)  # from step 4, in the second epoch
    assert [path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")] == saved
