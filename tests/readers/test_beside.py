"""Facts that lie beside a log: real configs, and files that must cost nothing."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.facts import FactValue
from trainproof.readers import beside
from trainproof.readers.beside import facts_beside


def facts(folder: Path, **files: str | bytes) -> dict[str, FactValue]:
    """The facts beside a log in a folder with these files ("__" stands for the dot in a name)."""
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / name.replace("__", ".")).write_bytes(data)
    return dict(facts_beside(folder / "log.jsonl"))


def test_the_config_of_a_causal_language_model(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
        "loss_type": "ForCausalLM",
        "max_position_embeddings": 4096,
    }
    assert facts(tmp_path, config__json=json.dumps(config)) == {
        "vocab_size": 32000,
        "precision": "bfloat16",
        "architecture": "llama",
        "objective": "lm",
    }


def test_the_config_of_a_classifier(tmp_path: Path) -> None:
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "vocab_size": 30522}
    assert facts(tmp_path, config__json=json.dumps(config))["objective"] == "classification"


def test_the_config_of_a_coqui_run(tmp_path: Path) -> None:
    config = {
        "model": "glow_tts",
        "epochs": 1000,
        "batch_size": 32,
        "grad_clip": 5.0,
        "lr": 0.001,
        "lr_scheduler": "NoamLR",
        "lr_scheduler_params": {"warmup_steps": 4000},
        "audio": {"sample_rate": 22050, "epochs": 3},
        "print_step": 25,
        "optimizer": "RAdam",
        "use_phonemes": True,
    }
    assert facts(tmp_path, config__json=json.dumps(config)) == {
        "epochs": 1000,
        "batch_size": 32,
        "max_grad_norm": 5.0,
        "learning_rate": 0.001,
        "schedule": "NoamLR",
        "logging_steps": 25,
        "optimizer": "RAdam",
    }


def test_a_gan_has_a_clip_a_network_and_that_is_no_scalar(tmp_path: Path) -> None:
    assert facts(tmp_path, config__json='{"grad_clip": [1000.0, 1000.0], "lr": 1e-4}') == {"learning_rate": 1e-4}


def test_an_adapter_lies_on_a_pretrained_model(tmp_path: Path) -> None:
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "gpt2", "r": 8}
    assert facts(tmp_path, adapter_config__json=json.dumps(adapter)) == {"pretrained": True, "objective": "lm"}


def test_the_adapter_is_asked_before_the_model(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 9}
    adapter = {"peft_type": "LORA", "task_type": "SEQ_CLS"}
    got = facts(tmp_path, config__json=json.dumps(config), adapter_config__json=json.dumps(adapter))
    assert got["objective"] == "classification"


HPARAMS = """\
# written by Lightning
accumulate_grad_batches: 4
lr: 3e-4
max_epochs: 10   # enough
gradient_clip_val: null
precision: '16-mixed'
optimizer: "adam#w"
seed: ~
warmup_steps: &anchor 100
model: !!python/object:model.Net {vocab_size: 5}
data:
  vocab_size: 7
schedule: >
  cosine
vocab_size: [1, 2]
n_vocab: !!python/object/apply:os.system ["touch pwned"]
save_steps : 5
"""


def test_flat_yaml_scalars_are_read_and_everything_else_is_passed_over(tmp_path: Path) -> None:
    assert facts(tmp_path, hparams__yaml=HPARAMS) == {
        "accumulation": 4,
        "learning_rate": 3e-4,
        "epochs": 10,
        "precision": "16-mixed",
        "optimizer": "adam#w",
    }
    assert not (tmp_path / "pwned").exists()


def test_args_yaml_of_ultralytics(tmp_path: Path) -> None:
    args = "task: detect\nmode: train\nepochs: 100\nbatch: 16\nlr0: 0.01\noptimizer: auto\nseed: 0\namp: true\n"
    assert facts(tmp_path, args__yaml=args) == {"epochs": 100, "learning_rate": 0.01, "optimizer": "auto", "seed": 0}


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_no_pickle_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Bomb())
    assert facts(tmp_path, training_args__bin=bomb, config__json=bomb, hparams__yaml=bomb) == {}
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"vocab_size": {"a": 1}}', b'{"vocab_size": null}'],
)
def test_a_file_that_says_nothing_costs_nothing(content: bytes, tmp_path: Path) -> None:
    assert facts(tmp_path, config__json=content, adapter_config__json=content, args__yaml=content) == {}


@pytest.mark.parametrize("value", ["9" * 400, "1e999", "-1e999", "NaN", '"' + "x" * 5000 + '"'])
def test_a_value_that_no_report_can_carry_is_passed_over(value: str, tmp_path: Path) -> None:
    assert facts(tmp_path, config__json=f'{{"vocab_size": {value}}}', args__yaml=f"max_steps: {value}") == {}


def test_a_huge_config_is_not_read(tmp_path: Path) -> None:
    huge = b'{"vocab_size": 5, "x": "' + b"x" * beside.MOST_BYTES + b'"}'
    assert facts(tmp_path, config__json=huge) == {}


def test_a_folder_or_a_pipe_of_that_name_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    os.mkfifo(tmp_path / "args.yaml")
    assert facts(tmp_path) == {}


@given(st.text(max_size=300))
def test_no_text_breaks_the_yaml_scanner(text: str) -> None:
    for key, value in beside.yaml_fields(text):
        assert key
        assert isinstance(value, str)
