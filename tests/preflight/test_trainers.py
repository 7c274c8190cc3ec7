"""What each trainer will leave out, cut or stop at is counted and named; the public reports of it are reproduced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.preflight.helpers import jsonl, judged, rows_told
from tools.speech_faults import Item, encoded
from tools.text_faults import clean_chats, clean_pairs
from trainproof import cli
from trainproof.errors import UsageError
from trainproof.preflight.found import Options
from trainproof.preflight.trainers import TRAINERS, checked_trainer, context_of
from trainproof.preflight_command import DataOptions, _check_lengths, run_data
from trainproof.verdict import Severity

EVERY = 1 << 40


def pack(folder: Path, clips: list[tuple[float, str]], declared: dict[int, float] | None = None) -> Path:
    """A manifest of clips of noise: seconds and text of each."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    lines = []
    for row, (seconds, text) in enumerate(clips, 1):
        sound = Item(rng.normal(0, 0.1, int(seconds * 8000)), "", 8000)
        (folder / f"{row}.wav").write_bytes(encoded(sound))
        line = {"audio_filepath": f"{row}.wav", "duration": (declared or {}).get(row, seconds), "text": text}
        lines.append(json.dumps(line) + "\n")
    (folder / "train.json").write_text("".join(lines))
    return folder


def words(path: Path, vocabulary: list[str], splits: bool = True) -> str:
    """A tokenizer of words, or of characters."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0} | {word: i for i, word in enumerate(vocabulary, 1)}, unk_token="[UNK]")
    )
    pattern = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.pre_tokenizer = pattern if splits else tokenizers.pre_tokenizers.Split("", "isolated")
    model.save(str(path))
    return str(path)


def test_the_command_line_knows_every_trainer() -> None:
    assert list(TRAINERS) == cli.TRAINERS


def test_piper_skips_what_has_too_many_phonemes(tmp_path: Path) -> None:
    """rhasspy/piper#663: "Skipped 31 utterance(s)"."""
    clips = [(1.0, f"a text of number {i}") for i in range(40)] + [(20.0, "word " * 60)] * 2
    report, found = judged(pack(tmp_path / "p", clips), options=Options(max_length=400, trainer="piper", keep=EVERY))
    assert rows_told(report, found, "TPD302") == {41, 42}
    assert "TPD308" not in {finding.rule for finding in report.findings}
    report, _ = judged(tmp_path / "p", options=Options(trainer="piper"))
    assert report.skipped["TPD302"].startswith("piper has no such limit by default")


@pytest.mark.parametrize(("clips", "left"), [(5, False), (6, True)])
def test_piper_holds_back_all_of_a_small_pack(clips: int, left: bool, tmp_path: Path) -> None:
    """rhasspy/piper#413: no training batches, of five clips."""
    report, _ = judged(pack(tmp_path / "p", [(1.0, "some text")] * clips), options=Options(trainer="piper"))
    assert ("TPD308" not in {finding.rule for finding in report.findings}) is left


def test_xtts_leaves_out_long_short_and_unknown(tmp_path: Path) -> None:
    """coqui-ai/TTS#3347, mobassir94/comprehensive-bangla-tts#6: 252 of 979 samples discarded; characters discarded."""
    clips = [
        (2.0, "a b"),
        (0.4, "a b"),
        (11.6, "a b"),
        (11.7, "a b"),
        (2.0, "a c"),
        (8.0, "a " * 200),
        (8.0, "a " * 199),
    ]
    options = Options(trainer="xtts", tokenizer=words(tmp_path / "v.json", ["a", "b"]), keep=EVERY)
    report, found = judged(pack(tmp_path / "p", clips), options=options)
    assert rows_told(report, found, "TPD301") == {2, 4}
    assert rows_told(report, found, "TPD302") == {6}
    assert rows_told(report, found, "TPD306") == {5}


def test_xtts_characters_by_language(tmp_path: Path) -> None:
    """daswer123/xtts-finetune-webui#20: a limit of 182 characters in Russian, 253 in German."""
    folder = pack(tmp_path / "p", [(5.0, "a" * 200), (5.0, "a" * 182)])
    for language, told in (("ru", {1}), ("de", set())):
        report, found = judged(folder, options=Options(trainer="xtts", language=language, keep=EVERY))
        assert rows_told(report, found, "TPD307") == told


def test_whisper_stops_at_long_labels(tmp_path: Path) -> None:
    """huggingface/datasets#5391, huggingface/transformers#33196: a label of more than 448 tokens ends the run."""
    clips = [(3.0, "a " * 444), (3.0, "a " * 445), (31.0, "a")]
    options = Options(trainer="whisper", tokenizer=words(tmp_path / "v.json", ["a"]), keep=EVERY)
    report, found = judged(pack(tmp_path / "p", clips), options=options)
    assert rows_told(report, found, "TPD302") == {2}
    assert "FAIL" in {finding.severity for finding in report.findings if finding.rule == "TPD302"}
    assert rows_told(report, found, "TPD301") == {3}


def test_nemo_goes_by_the_declared_duration(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Speech#2354: num_samples = 0 where the manifest's durations are wrong."""
    clips = [(2.0, "some text")] * 30
    report, found = judged(
        pack(tmp_path / "p", clips, dict.fromkeys(range(1, 31), 2000.0)),
        options=Options(trainer="nemo-ctc", keep=EVERY),
    )
    assert rows_told(report, found, "TPD301") == set(range(1, 31))
    assert {"TPD222", "TPD308"} <= {finding.rule for finding in report.findings}


def test_ctc_needs_a_frame_a_token_and_one_a_repeat(tmp_path: Path) -> None:
    """k2-fsa/icefall#1777: the loss is NaN where there are fewer frames."""
    clips = [(1.0, "abcdefghijkl"), (1.0, "a" * 13), (1.0, "abcdefghijklm"), (1.0, "abcdefghijklmnopqrstuvwxyz")]
    folder = pack(tmp_path / "p", clips)
    # 25 frames of a Conformer, 13 of a FastConformer; thirteen equal letters need 25
    report, found = judged(folder, options=Options(trainer="nemo-ctc", keep=EVERY))
    assert rows_told(report, found, "TPD305") == {4}
    tokenizer = words(tmp_path / "v.json", list("abcdefghijklmnopqrstuvwxyz"), splits=False)
    report, _ = judged(folder, options=Options(trainer="nemo-ctc", tokenizer=tokenizer, keep=EVERY))
    told = {finding.severity: finding for finding in report.findings if finding.rule == "TPD305"}
    assert [point.line for point in told[Severity.FAIL].evidence] == [4]
    assert [point.line for point in told[Severity.WARN].evidence] == [2]


def chat(answer: str, asked: str = "why") -> dict[str, object]:
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}


@pytest.mark.parametrize(("trainer", "default"), [("trl-sft", 1024), ("axolotl", 512), ("llama-factory", 2048)])
def test_contexts_by_default_and_by_choice(trainer: str, default: int, tmp_path: Path) -> None:
    tokenizer = words(tmp_path / "v.json", ["a"])
    path = jsonl(tmp_path / "data.jsonl", *[chat("a " * (size - 1)) for size in (10, default, default + 1)])
    for most, told in ((context_of(trainer), {3}), (5, {1, 2, 3})):
        report, found = judged(path, options=Options(most, tokenizer, trainer, keep=EVERY))
        assert rows_told(report, found, "TPD302") == told
        assert "TPD118" in report.skipped
    assert all(trainer in reason for _, reason in found.rejected("TPD302"))


def test_what_is_cut_is_not_the_answer_everywhere(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "data.jsonl", chat("a a", "a " * 30))
    tokenizer = words(tmp_path / "v.json", ["a"])
    told = {
        trainer: rows_told(*judged(path, options=Options(20, tokenizer, trainer, keep=EVERY)), "TPD136")
        for trainer in ("trl-sft", "axolotl", "llama-factory")
    }
    assert told == {"trl-sft": {1}, "axolotl": set(), "llama-factory": set()}


def test_llama_factory_skips_turns_that_do_not_alternate(tmp_path: Path) -> None:
    records = list(clean_chats(100))
    records[3]["messages"] = records[3]["messages"][:-1]
    report, found = judged(
        jsonl(tmp_path / "data.jsonl", *records), options=Options(trainer="llama-factory", keep=EVERY)
    )
    assert rows_told(report, found, "TPD304") == {4}


def test_trl_reads_no_alpaca(tmp_path: Path) -> None:
    records = [{"instruction": pair["prompt"], "output": pair["chosen"]} for pair in clean_pairs(30)]
    path = jsonl(tmp_path / "data.jsonl", *records)
    report, _ = judged(path, options=Options(trainer="trl-sft"))
    assert "TPD303" in {finding.rule for finding in report.findings}
    report, _ = judged(path, options=Options(trainer="axolotl"))
    assert "TPD303" in report.skipped


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_clean_set_has_no_finding(trainer: str, tmp_path: Path) -> None:
    options = Options(context_of(trainer), trainer=trainer, tokenizer=None, keep=EVERY)
    if "speech" in TRAINERS[trainer].kinds:
        path = pack(tmp_path / "p", [(3.0, f"this is the text of the clip number {i}") for i in range(30)])
    else:
        path = jsonl(tmp_path / "data.jsonl", *clean_chats(300))
    report, _ = judged(path, options=options)
    assert {finding.rule for finding in report.findings if finding.rule >= "TPD300"} == set()


def test_rejects_have_the_trainers_reason(tmp_path: Path) -> None:
    folder = pack(tmp_path / "p", [(2.0, "some text")] * 3 + [(12.0, "some text")])
    shared = dict.fromkeys(("output", "html", "fail_on"))
    own = DataOptions((str(folder),), trainer="xtts", rejects=str(tmp_path / "bad.jsonl"), workers=1)
    run_data(own, shared | {"select": ("TPD301",), "ignore": (), "no_html": True, "quiet": True})
    (record,) = (json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines())
    assert (record["row"], record["rule"], record["reason"]) == (
        4,
        "TPD301",
        "12 s: xtts leaves out what is over 11.61 s",
    )


@pytest.mark.parametrize(
    ("trainer", "kind", "language"), [("whisper", "chat", None), ("trl-sft", "speech", None), ("xtts", "speech", "xx"), (None, "chat", "en")]
)  # fmt: skip
def test_a_trainer_of_other_data_is_refused(trainer: str | None, kind: str, language: str | None) -> None:
    with pytest.raises(UsageError):
        checked_trainer(trainer, kind, language)


@pytest.mark.parametrize("own", [{"max_length": 5}, {"tokenizer": "t"}, {"max_length": 5, "trainer": "xtts"}])
def test_lengths_need_what_counts(own: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        _check_lengths(DataOptions(("x",), **own))  # type: ignore[arg-type]
