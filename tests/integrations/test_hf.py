"""The callback in real Trainers of transformers and of TRL, on the CPU."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

STEPS = 120
VOCAB = 32


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config)


def counting(poisoned: bool = False) -> list[dict[str, Any]]:
    """Tokens that mostly count up, from another one each time: easily learned. `poisoned`: all labels are masked from the 320th on."""
    random = torch.Generator().manual_seed(0)
    noise = torch.randint(0, VOCAB, (2000, 16), generator=random) * (torch.rand(2000, 16, generator=random) < 0.2)
    rows = [(torch.arange(16) + 7 * i + noise[i]) % VOCAB for i in range(2000)]
    return [
        {"input_ids": tokens, "labels": torch.full_like(tokens, -100) if poisoned and i >= 320 else tokens}
        for i, tokens in enumerate(rows)
    ]


def train(folder: Path, callback: Any, rate: float, poisoned: bool = False, **arguments: Any) -> Any:
    args = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "max_steps": STEPS,
            "per_device_train_batch_size": 8,
            "learning_rate": rate,
            "logging_steps": 1,
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "disable_tqdm": True,
            "seed": 1,
            **arguments,
        }
    )
    trainer = transformers.Trainer(
        model=model(), args=args, train_dataset=counting(poisoned), eval_dataset=counting()[:80], callbacks=[callback]
    )
    if poisoned:
        trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    trainer.train(resume_from_checkpoint=arguments.get("resume_from_checkpoint"))
    return trainer


def callback(**arguments: Any) -> Any:
    from trainproof.integrations.hf import TrainproofCallback

    return TrainproofCallback(**arguments)


def test_a_run_with_100_times_the_rate_is_stopped_and_its_healthy_twin_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fine, lost = callback(policy="stop_on_fail"), callback(policy="stop_on_fail")
    healthy = train(tmp_path / "healthy", fine, rate=0.3)
    assert healthy.state.global_step == STEPS
    assert fine.message is None
    with caplog.at_level(logging.ERROR, "trainproof"):
        hot = train(tmp_path / "hot", lost, rate=30.0)
    records = [record for record in hot.state.log_history if "loss" in record]
    assert len(records) <= 25
    assert lost.message in caplog.messages
    saved = f"{1 - hot.state.global_step / STEPS:.0%}"
    assert f"at step {hot.state.global_step} of {STEPS}, which saves {saved} of the run" in lost.message
    assert all(finding.rule in lost.message for finding in lost.guardian.stopped_by)


def test_the_verdict_and_the_report_are_in_the_output_folder(tmp_path: Path) -> None:
    train(tmp_path, callback(), rate=0.3)
    verdict = json.loads((tmp_path / "trainproof.json").read_text())
    assert verdict["verdict"] == "PASS"
    assert verdict["runs"][0]["facts"]["total_steps"] == STEPS
    assert verdict["runs"][0]["facts"]["vocab_size"] == VOCAB
    assert verdict["runs"][0]["objective"] == "lm"
    assert "<html" in (tmp_path / "trainproof.html").read_text()


def test_warn_never_stops(tmp_path: Path) -> None:
    watching = callback(on_finding=())
    assert train(tmp_path, watching, rate=30.0).state.global_step == STEPS
    assert watching.guardian.verdict.value == "FAIL"


def test_it_says_what_epoch_says_of_the_log_that_the_trainer_wrote(tmp_path: Path) -> None:
    from trainproof import judge

    watching = callback(on_finding=())
    shown = {"logging_nan_inf_filter": False}  # else the callback sees more than the log
    trainer = train(tmp_path, watching, rate=3.0, eval_strategy="steps", eval_steps=10, **shown)
    trainer.state.save_to_json(str(tmp_path / "trainer_state.json"))
    [run] = judge(tmp_path / "trainer_state.json", facts=dict(watching.guardian.log.facts)).runs
    offline = [f for finding in run.findings for f in (finding, *finding.related) if f.severity.value != "INFO"]
    live = watching.guardian.findings
    assert sorted((f.rule, f.flagged_step) for f in live) == sorted((f.rule, f.flagged_step) for f in offline)


def test_losses_that_the_trainer_hides_are_seen(tmp_path: Path) -> None:
    """All labels masked: the loss is NaN, and the Trainer logs the average of what was before."""
    watching = callback(policy="stop_on_fail", on_finding=())
    trainer = train(tmp_path, watching, rate=0.3, poisoned=True, max_grad_norm=1.0)
    logged = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert all(loss == loss for loss in logged)
    assert {finding.rule for finding in watching.guardian.stopped_by} & {"TP101", "TP103", "TP208"}
    assert trainer.state.global_step < 60


def test_what_is_logged_is_not_changed(tmp_path: Path) -> None:
    logs = {"loss": 1.0, "note": "x", "learning_rate": 0.1}
    given = dict(logs)
    args = transformers.TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    callback(on_finding=()).on_log(args, transformers.TrainerState(), transformers.TrainerControl(), logs=logs)
    assert logs == given


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    train(tmp_path, callback(), rate=0.3, max_steps=40, save_strategy="steps", save_steps=20)
    resumed = callback(on_finding=())
    checkpoint = str(tmp_path / "checkpoint-20")
    train(tmp_path, resumed, rate=0.3, max_steps=40, resume_from_checkpoint=checkpoint)
    frame = resumed.guardian.log.frames()[-1]
    assert frame["loss"].step.tolist() == list(range(1, 41))


class TestTRL:
    """The callback is handed to TRL's trainers as to any other."""

    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Any:
        tokenizers = pytest.importorskip("tokenizers")
        words = {f"w{i}": i for i in range(VOCAB - 4)} | {"<pad>": VOCAB - 4, "<eos>": VOCAB - 3, "<unk>": VOCAB - 2}
        whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
        whole.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=whole, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
        )

    @staticmethod
    def text(start: int, length: int = 8) -> str:
        return " ".join(f"w{(start + i) % (VOCAB - 4)}" for i in range(length))

    def config(self, kind: Any, folder: Path, **arguments: Any) -> Any:
        return kind(
            output_dir=str(folder),
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            **arguments,
        )

    def test_sft(self, tokenizer: Any, tmp_path: Path) -> None:
        trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
        data = datasets.Dataset.from_list([{"text": self.text(i)} for i in range(64)])
        watching = callback(on_finding=())
        args = self.config(trl.SFTConfig, tmp_path, max_length=16)
        trl.SFTTrainer(model(), args, train_dataset=data, processing_class=tokenizer, callbacks=[watching]).train()
        frame = watching.guardian.log.frames()[0]
        assert len(frame["loss"]) == 6
        assert frame.objective == "lm"

    def test_dpo(self, tokenizer: Any, tmp_path: Path) -> None:
        trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
        data = datasets.Dataset.from_list(
            [{"prompt": self.text(i, 4), "chosen": self.text(i + 4, 4), "rejected": self.text(i, 4)} for i in range(64)]
        )
        watching = callback(on_finding=())
        args = self.config(trl.DPOConfig, tmp_path, max_length=16)
        trl.DPOTrainer(
            model(), model(), args, train_dataset=data, processing_class=tokenizer, callbacks=[watching]
        ).train()
        frame = watching.guardian.log.frames()[0]
        assert len(frame["rewards/chosen"]) == 6
        assert frame.objective == "preference"

    def test_grpo(self, tokenizer: Any, tmp_path: Path) -> None:
        trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
        data = datasets.Dataset.from_list([{"prompt": self.text(i, 4)} for i in range(64)])
        watching = callback(on_finding=())
        args = self.config(trl.GRPOConfig, tmp_path, num_generations=4, max_completion_length=4)

        def reward(completions: list[str], **_: Any) -> list[float]:
            return [float(len(set(text.split()))) for text in completions]

        trl.GRPOTrainer(
            model(), reward, args, train_dataset=data, processing_class=tokenizer, callbacks=[watching]
        ).train()
        frame = watching.guardian.log.frames()[0]
        assert len(frame["reward"]) == 6
        assert frame.objective == "rl"
