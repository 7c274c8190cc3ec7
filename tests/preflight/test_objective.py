"""Every fault of a batch is named by its check; the healthy batch has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainproof.apart import Subject, judge_apart
from trainproof.errors import InputError, TrainproofError, UsageError
from trainproof.judge import Settings as Judging
from trainproof.preflight.batch import Settings, read_batch
from trainproof.verdict import RunReport

CLASSES, EOS, PAD = 50, 1, 0
Arrays = dict[str, NDArray[Any]]
SAID = Settings(eos=EOS, pad=PAD, shift="model")


def healthy() -> Arrays:
    """A prompt of four tokens that is masked, an answer, an end, padding that is masked."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(2, CLASSES, (8, 16))
    inputs[:, 12], inputs[:, 13:] = EOS, PAD
    labels = inputs.copy()
    labels[:, :4] = labels[:, 13:] = -100
    return {"input_ids": inputs, "labels": labels, "logits": rng.normal(0, 0.1, (8, 16, CLASSES)).astype(np.float32)}


def judged(arrays: Arrays, folder: Path, settings: Settings = SAID) -> RunReport:
    np.savez(folder / "batch.npz", **arrays)  # type: ignore[arg-type]  # arrays by name
    batch = read_batch(str(folder / "batch.npz"), settings)
    return judge_apart("objective", batch, Subject("batch.npz", "batch", "npz", 8), Judging())


def changed(name: str, where: Any, value: Any) -> Callable[[Arrays], Settings]:
    def change(arrays: Arrays) -> Settings:
        arrays[name][where] = value
        return SAID

    return change


def shifted(places: int) -> Callable[[Arrays], Settings]:
    def change(arrays: Arrays) -> Settings:
        arrays["labels"] = np.roll(arrays["input_ids"], -places, axis=1)
        arrays["labels"][:, -4:] = -100
        return SAID

    return change


def reshaped(arrays: Arrays) -> Settings:
    arrays["logits"] = arrays["logits"][:, :-1]
    return SAID


def fractions(arrays: Arrays) -> Settings:
    arrays["labels"] = arrays["labels"] + 0.5
    return SAID


def classes(arrays: Arrays) -> Settings:
    arrays["labels"], arrays["logits"] = np.ones((8, 16), int), np.zeros((8, 16, 3), np.float32)
    return SAID


FAULTS: dict[str, tuple[str, Callable[[Arrays], Settings]]] = {
    "logits of another length": ("TPO101", reshaped),
    "labels with fractions": ("TPO102", fractions),
    "label over the classes": ("TPO103", changed("labels", (3, 5), CLASSES)),
    "pad id over the embeddings (llama-cookbook#189)": ("TPO103", changed("labels", (slice(None), 14), 32_000)),
    "negative label": ("TPO103", changed("labels", (3, 5), -1)),
    "ignored class": ("TPO104", lambda _: SAID._replace(ignore_index=EOS)),
    "one row masked (trl#6025)": ("TPO105", changed("labels", 2, -100)),
    "all rows masked (LLaVA#1706)": ("TPO105", changed("labels", slice(None), -100)),
    "shifted twice": ("TPO106", shifted(2)),
    "shifted in the data, and in the model": ("TPO106", shifted(1)),
    "shifted backwards": ("TPO106", shifted(-1)),
    "no end (trl#1623)": ("TPO107", changed("labels", (slice(None), 12), 7)),
    "ends masked with the padding (trl#976)": ("TPO107", changed("labels", (slice(None), 12), -100)),
    "nothing masked": ("TPO108", changed("labels", ..., 5)),
    "padding learned": ("TPO109", changed("labels", (slice(None), slice(13, 16)), PAD)),
    "one class": ("TPO110", classes),
    "NaN logits": ("TPO111", changed("logits", (0, 0, 0), np.nan)),
    "infinite logits": ("TPO111", changed("logits", (0, 0), -np.inf)),
    "sure of the wrong": ("TPO112", changed("logits", (slice(None), slice(None), 2), 40.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, tmp_path: Path) -> None:
    arrays = healthy()
    code, change = FAULTS[name]
    settings = change(arrays)
    assert code in {finding.rule for finding in judged(arrays, tmp_path, settings).findings}


def test_the_healthy_batch_has_no_finding(tmp_path: Path) -> None:
    report = judged(healthy(), tmp_path)
    assert (report.verdict, report.findings) == ("PASS", ())
    assert set(report.skipped) == {"TPO110", "TPO113"}


def test_safetensors_give_the_same(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    library.save_file(healthy(), str(tmp_path / "batch.safetensors"))
    batch = read_batch(str(tmp_path / "batch.safetensors"), SAID)
    assert np.array_equal(batch.labels, healthy()["labels"])
    assert batch.logits is not None
    assert batch.logits.shape == (8, 16, CLASSES)


def test_a_function_of_a_script_is_run_apart(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import numpy as np\nprint('hello')\ndef make_batch():\n    return np.zeros((2, 3, 5)), np.ones((2, 3), int)\ndef bad():\n    raise RuntimeError('no data')\ndef dies():\n    import os; os._exit(3)\n")  # fmt: skip
    batch = read_batch(f"{script}:make_batch", SAID)
    assert (batch.labels.shape, batch.classes) == ((2, 3), 5)
    for function, said in (("bad", "no data"), ("dies", "ended with 3"), ("missing", "missing")):
        with pytest.raises(InputError, match=said) as error:
            read_batch(f"{script}:{function}", SAID)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["missing.npz", "text.npz", "pickled.npz", "short.safetensors", "other.pt", "nothing.npz", "none.py:f"]
)
def test_hostile_batches_are_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "pickled.npz", labels=np.array([{}], object))
    np.savez(tmp_path / "nothing.npz", a=np.zeros(2))
    (tmp_path / "short.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(TrainproofError) as error:
        read_batch(str(tmp_path / name), SAID)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, InputError | UsageError)


def _random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)


def _whole(most: int, *shape: int) -> NDArray[np.int64]:
    return np.random.default_rng(2).integers(1, most, shape)


SHAPES: dict[str, tuple[Arrays, Settings]] = {
    "segmentation, classes second": (
        {"logits": _random(2, 5, 16, 16), "labels": np.where(np.eye(16, dtype=bool), 255, _whole(6, 2, 16, 16) - 1)},
        Settings(255),
    ),
    "a sequence to a sequence": (
        {
            "logits": _random(4, 12, 50),
            "labels": np.c_[[[-100]] * 4, _whole(50, 4, 11)],
            "input_ids": _whole(50, 4, 32),
        },
        Settings(),
    ),
    "CTC, frames first": (
        {"logits": _random(100, 4, 30), "labels": _whole(30, 4, 20), "target_lengths": np.full(4, 18)},
        Settings(),
    ),
    "CTC, rows in one": (
        {"logits": _random(4, 100, 30), "labels": _whole(30, 50), "target_lengths": np.array([10, 20, 15, 5])},
        Settings(),
    ),
    "CTC, as said": ({"logits": _random(4, 100, 30), "labels": _whole(30, 4, 20)}, Settings(loss="ctc")),
    "several labels a row": ({"logits": _random(16, 5), "labels": _whole(5, 16, 5) % 2}, Settings()),
    "probabilities": ({"logits": _random(16, 5), "labels": np.full((16, 5), 0.2, np.float32)}, Settings()),
    "one logit": ({"logits": _random(16, 1), "labels": _whole(5, 16) % 2}, Settings()),
    "regression": ({"logits": _random(16, 1), "labels": _random(16)}, Settings()),
}


@pytest.mark.parametrize("name", SHAPES)
def test_batches_of_other_losses_have_no_finding(name: str, tmp_path: Path) -> None:
    arrays, settings = SHAPES[name]
    assert [(f.rule, f.message) for f in judged(arrays, tmp_path, settings).findings] == []


def test_a_label_of_ctc_that_no_frames_spell(tmp_path: Path) -> None:
    labels = np.array([[1, 2, 3, 4, -100], [1, 1, 2, 2, 2]])
    report = judged({"logits": _random(2, 6, 9), "labels": labels}, tmp_path, Settings(loss="ctc"))
    assert [(f.rule, [point.line for point in f.evidence]) for f in report.findings] == [("TPO113", [2])]


def test_labels_of_segmentation_out_of_range_are_cited(tmp_path: Path) -> None:
    arrays, settings = SHAPES["segmentation, classes second"]
    labels = arrays["labels"].copy()
    labels[1, 3, 4] = 5
    told = judged(arrays | {"labels": labels}, tmp_path, settings).findings
    assert [(f.rule, f.evidence[0].excerpt) for f in told] == [("TPO103", "at [1, 3, 4]")]
    told = judged(arrays, tmp_path, Settings()).findings
    assert "--ignore-index 255" in next(f.message for f in told if f.rule == "TPO103")


def test_lengths_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not go with 2 lengths"):
        judged({"logits": _random(2, 9, 5), "labels": _whole(5, 7), "target_lengths": np.array([3, 3])}, tmp_path)
