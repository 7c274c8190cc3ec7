"""Every fault of a tokenizer, of its special tokens and of its template is named by its check; healthy ones have none."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.helpers import codes
from tools.speech_faults import clean_items, write_pack
from tools.text_faults import sentences
from trainproof.apart import Subject, judge_apart
from trainproof.errors import InputError
from trainproof.judge import Settings
from trainproof.preflight.encoding import tokenized
from trainproof.preflight.templates import rendering_of
from trainproof.preflight.tokens import NOT_ALONE, read_tokenizer
from trainproof.verdict import RunReport

sentencepiece = pytest.importorskip("sentencepiece")
tokenizers = pytest.importorskip("tokenizers")

from tools.tokenizer_faults import TEMPLATE, TOKENIZER_FAULTS, Case, clean_case, trained, write  # noqa: E402  needs it


def judged(model: Path, texts: Path | None, base: Path | None = None) -> RunReport:
    found = tokenized(str(model), (str(texts),) if texts else (), str(base) if base else None)
    return judge_apart("tokenizer", found, Subject(str(model), "tokenizer", "", len(found.texts)), Settings())


def judged_case(folder: Path, case: Case) -> RunReport:
    return judged(write(folder, case), folder / "texts.txt")


def texts_file(folder: Path, texts: list[str]) -> Path:
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder / "texts.txt"


@pytest.mark.parametrize("name", TOKENIZER_FAULTS)
def test_a_fault_is_named(name: str, tmp_path: Path) -> None:
    code, fault = TOKENIZER_FAULTS[name]
    assert code in codes(judged_case(tmp_path / "model", fault(clean_case())))


def test_the_healthy_tokenizer_has_no_finding(tmp_path: Path) -> None:
    report = judged_case(tmp_path / "model", clean_case())
    assert (report.verdict, report.findings) == ("PASS", ())


def test_a_template_that_never_ends_is_ended() -> None:
    loop = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
    assert rendering_of(loop, {}, patience=1.0).error == "not rendered within 1 s"


def test_templates_have_what_transformers_gives_them() -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content | tojson }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ strftime_now('%Y') }}{{ eos_token }}"
    )
    rendering = rendering_of(template, {"eos_token": "</s>"})
    assert rendering.whole == 'Alpha rule.Bravo question?"Charlie answer."2026</s>'


def pieces(path: Path, **options: Any) -> Path:
    """A SentencePiece model of the sentences."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()),
        model_prefix=str(path.with_suffix("")),
        vocab_size=400,
        minloglevel=2,
        **options,
    )
    return path


def test_sentencepiece_unknown_and_byte_fallback(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Speech#6651, google-research/text-to-text-transfer-transformer#657: what is unknown comes out as a sign."""
    plain = pieces(tmp_path / "plain.model", character_coverage=1.0)
    texts = [*sentences()[:50], "Az ő <háza> szép."]
    report = judged(plain, texts_file(tmp_path, texts))
    told = next(finding for finding in report.findings if finding.rule == "TPT101")
    assert [point.line for point in told.evidence] == [51]
    assert "U+0151" in told.evidence[0].excerpt
    assert codes(judged(plain, texts_file(tmp_path, sentences()[:50]))) == set()
    fallback = pieces(tmp_path / "bytes.model", byte_fallback=True, hard_vocab_limit=False)
    report = judged(fallback, texts_file(tmp_path, ["добрый день"] * 5))
    assert "TPT102" in codes(report)
    assert "TPT101" not in codes(report)


@pytest.mark.parametrize("kind", ["tokenizer.json", "unigram", "bpe"])
def test_texts_that_joining_gives_back_the_library_gives_back(kind: str, tmp_path: Path) -> None:
    """What tokens stand for, joined, is what the library decodes; where it is not sure of a token it says so."""
    if kind == "tokenizer.json":
        model = write(tmp_path / "model", clean_case())
    else:
        model = pieces(tmp_path / "own.model", model_type=kind, byte_fallback=True, hard_vocab_limit=False)
    tokenizer = read_tokenizer(str(model))
    assert tokenizer.joined is not None
    texts = [*sentences()[:50], "a  b\tc\n", "Az ő <háza> szép.", "\u2581x <0x41> ⁇ <s>", "日本", "\U0001f600!", ""]
    known = 0
    for text in texts:
        ids = tokenizer.encode(text)
        joined = "".join(tokenizer.joined[i] for i in ids)
        if NOT_ALONE not in joined:
            assert joined.strip() == tokenizer.decode(ids).strip()
            known += joined.strip() == text.strip()
    assert known >= 50


def test_a_sentencepiece_model_that_rewrites_what_it_decodes(tmp_path: Path) -> None:
    """Its tokens joined are the text; what it decodes is not."""
    (tmp_path / "rules.tsv").write_text("65\t6F\n")  # e becomes o
    model = pieces(tmp_path / "own.model", denormalization_rule_tsv=str(tmp_path / "rules.tsv"))
    assert "TPT104" in codes(judged(model, texts_file(tmp_path, sentences()[:100])))


def test_other_than_the_base(tmp_path: Path) -> None:
    base = write(tmp_path / "base", clean_case())
    more = trained()
    more.add_tokens(["<|new|>"])
    grown = write(tmp_path / "grown", clean_case()._replace(model=more))
    told = [finding for finding in judged(grown, None, base).findings if finding.rule == "TPT131"]
    assert [finding.severity for finding in told] == ["INFO"]
    other = tokenizers.Tokenizer.from_str(trained().to_str().replace("<pad>", "<nil>"))
    changed = write(tmp_path / "other", clean_case()._replace(model=other))
    assert "FAIL" in {f.severity for f in judged(changed, None, base).findings if f.rule == "TPT131"}


def ranks(path: Path, more: tuple[bytes, ...] = (b"th", b"the")) -> Path:
    tokens = [bytes((byte,)) for byte in range(256)] + list(more)
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    return path


def test_tiktoken_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    tokenizer = read_tokenizer(str(ranks(tmp_path / "own.tiktoken")))
    assert tokenizer.encode("the ő") == [257, 32, 0xC5, 0x91]
    assert tokenizer.decode([257, 32, 0xC5, 0x91]) == "the ő"
    assert judged(tmp_path / "own.tiktoken", texts_file(tmp_path, sentences()[:60])).verdict == "PASS"
    (tmp_path / "llama").mkdir()
    assert read_tokenizer(str(ranks(tmp_path / "llama" / "tokenizer.model").parent)).kind == "tiktoken"
    lacking = tmp_path / "lacking.tiktoken"
    lacking.write_bytes(b"dGhl 0\n")
    with pytest.raises(InputError, match="without 256 of the 256 bytes"):
        read_tokenizer(str(lacking))


COQUI = {
    "characters": {
        "pad": "<PAD>",
        "eos": "<EOS>",
        "characters": "abcdefghijklmnopqrstuvwxyz",
        "punctuations": "!'(),-.:;? ",
    }
}
SPEECH_VOCABULARIES: dict[str, tuple[dict[str, Any], str | None]] = {
    "Coqui characters": (COQUI, None),
    "Piper of text": ({"phoneme_type": "text", "phoneme_id_map": {c: [i] for i, c in enumerate("_^$abcdefghijklmnopqrstuvwxyz!'(),-.:;? ")}}, None),
    "vocab.json of CTC": ({c: i for i, c in enumerate([*"abcdefghijklmnopqrstuvwxyz|!'(),-.:;?", "<pad>", "[UNK]"])}, None),
    "Coqui phonemes": (COQUI | {"use_phonemes": True}, "its characters are phonemes"),
    "Piper of espeak": ({"phoneme_type": "espeak", "phoneme_id_map": {"a": [1]}}, "its characters are phonemes"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPEECH_VOCABULARIES)
def test_characters_of_speech_models(name: str, tmp_path: Path) -> None:
    """mobassir94/comprehensive-bangla-tts#6, SWivid/F5-TTS#1031: characters that the model does not have are discarded."""
    document, refused = SPEECH_VOCABULARIES[name]
    model = tmp_path / "config.json"
    model.write_text(json.dumps(document))
    if refused:
        with pytest.raises(InputError, match=refused):
            read_tokenizer(str(model))
        return
    report = judged(model, texts_file(tmp_path, [*sentences()[:60], "ein schöner Satz", "ஒரு வரி"]))
    told = next(finding for finding in report.findings if finding.rule == "TPT101")
    assert [point.line for point in told.evidence] == [61, 62]
    assert "U+00F6" in told.evidence[0].excerpt
    assert judged(model, texts_file(tmp_path, sentences()[:60])).findings == ()


def test_voice_bpe_lowers_and_marks_spaces(tmp_path: Path) -> None:
    signs = ["[STOP]", "[UNK]", "[SPACE]", *"abcdefghijklmnopqrstuvwxyz.,"]
    model = tokenizers.Tokenizer(tokenizers.models.BPE({s: i for i, s in enumerate(signs)}, [], unk_token="[UNK]"))
    model.add_special_tokens(["[STOP]", "[UNK]", "[SPACE]"])
    model.save(str(tmp_path / "vocab.json"))
    tokenizer = read_tokenizer(str(tmp_path / "vocab.json"))
    assert tokenizer.kind == "VoiceBpe"
    assert tokenizer.decode(tokenizer.encode("A  b")) == "a b"
    report = judged(tmp_path / "vocab.json", texts_file(tmp_path, [*sentences()[:60], "schön"]))
    told = next(finding for finding in report.findings if finding.rule == "TPT101")
    assert [point.line for point in told.evidence if "ö" in point.excerpt] == [61]


def test_tokens_a_second_of_sound(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack", clean_items(30))
    model = write(tmp_path / "model", clean_case())
    lines = (pack / "metadata.csv").read_text().splitlines()
    lines[4] = "clip00005|" + "|".join(["Много слов на другом языке, " * 12] * 2)
    (pack / "metadata.csv").write_text("\n".join(lines) + "\n")
    told = next(finding for finding in judged(model, pack).findings if finding.rule == "TPT110")
    assert [point.line for point in told.evidence] == [5]


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["tokenizer.pkl", "tokenizer.model", "tokenizer.json", "model.tiktoken"])
def test_pickles_are_never_loaded(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Canary(tmp_path / "ran")))
    with pytest.raises(InputError, match="a pickled tokenizer is never loaded"):
        read_tokenizer(str(tmp_path / name))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["missing", "empty.json", "text.model", "list.json", "deep.json", "odd.json", "folder"]
)
def test_hostile_tokenizers_are_one_line(name: str, tmp_path: Path) -> None:
    for file, content in (
        ("empty.json", "{}"),
        ("text.model", "nothing"),
        ("list.json", "[[["),
        ("deep.json", '{"a":' * 100_000),
        ("odd.json", '{"model": 7}'),
    ):
        (tmp_path / file).write_text(content)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError) as error:
        read_tokenizer(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_the_template_is_the_one_that_models_use() -> None:
    assert rendering_of(TEMPLATE, {}).whole.count("<|im_end|>") == 5


def _as_zephyr(case: Case) -> Case:
    """Markers that are plain text, and the end token after each turn."""
    template = (
        "{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    )
    return case._replace(config=case.config | {"chat_template": template})


def _as_gemma(case: Case) -> Case:
    template = str(case.config["chat_template"])
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    return case._replace(config=case.config | {"chat_template": refusal + template})


def _as_mistral(case: Case) -> Case:
    template = "{{ bos_token }}" + str(case.config["chat_template"])
    return case._replace(config=case.config | {"chat_template": template, "add_bos_token": True})


def _as_bert(case: Case) -> Case:
    config = {name: value for name, value in case.config.items() if name not in ("chat_template", "eos_token")}
    changed = TOKENIZER_FAULTS["case is lost"][1](case)
    return changed._replace(config=config | {"mask_token": "<unk>", "do_lower_case": True})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_as_zephyr, {"TPT126": "WARN"}),
        (_as_gemma, {"TPT125": "INFO"}),
        (_as_mistral, {"TPT124": "INFO"}),
        (_as_bert, {"TPT105": "INFO", "TPT111": "INFO"}),
    ],
)
def test_what_a_family_does_on_purpose_does_not_fail(
    change: Callable[[Case], Case], told: dict[str, str], tmp_path: Path
) -> None:
    report = judged_case(tmp_path / "model", change(clean_case()))
    assert {f.rule: f.severity for f in report.findings if f.rule in told} == told
    assert "FAIL" not in {f.severity for f in report.findings}


def test_chatml_without_its_tokens_fails(tmp_path: Path) -> None:
    code, fault = TOKENIZER_FAULTS["a marker that is no token (axolotl#1770)"]
    case = fault(clean_case())
    template = str(case.config["chat_template"]).replace("<|im_end|>", "<|turn_end|>")
    report = judged_case(tmp_path / "model", case._replace(config=case.config | {"chat_template": template}))
    assert {f.severity for f in report.findings if f.rule == code} == {"FAIL"}


def test_the_characters_of_a_whole_coqui_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model": "vits", "characters": {"pad": "_", "characters": "abc", "punctuations": " ."}})
    )
    assert read_tokenizer(str(path)).kind == "characters"
