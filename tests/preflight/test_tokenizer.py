"""Every fault of a tokenizer, of its special tokens and of its template is named by its check; healthy ones have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.helpers import codes
from tools.text_faults import sentences
from trainproof.apart import Subject, judge_apart
from trainproof.errors import InputError
from trainproof.judge import Settings
from trainproof.preflight.encoding import tokenized
from trainproof.preflight.tokens import read_tokenizer
from trainproof.verdict import RunReport

sentencepiece = pytest.importorskip("sentencepiece")
tokenizers = pytest.importorskip("tokenizers")

MARKERS = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Config = dict[str, Any]


def trained(**options: Any) -> Any:
    """A byte-level BPE over the sentences of the fault sets."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=MARKERS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(sentences()[:300], trainer)
    for name, value in options.items():
        setattr(model, name, value)
    return model


def healthy() -> tuple[Config, Config]:
    """tokenizer_config.json and config.json."""
    config = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    return config, {"vocab_size": 704}


def folder(path: Path, model: Any, config: Config, sizes: Config) -> Path:
    path.mkdir(exist_ok=True)
    model.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps(sizes))
    return path


def judged(path: Path, texts: list[str], base: Path | None = None) -> RunReport:
    named = path.parent / "texts.txt"
    named.write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = tokenized(str(path), (str(named),), str(base) if base else None)
    return judge_apart("tokenizer", found, Subject(str(path), "tokenizer", "", len(found.texts)), Settings())


def edited(**values: Any) -> Callable[[Config, Config], None]:
    return lambda config, _: config.update(values)


def templated(old: str, new: str) -> Callable[[Config, Config], None]:
    return lambda config, _: config.update(chat_template=TEMPLATE.replace(old, new))


def without(name: str) -> Callable[[Config, Config], None]:
    def change(config: Config, _: Config) -> None:
        del config[name]

    return change


SETTING_FAULTS: dict[str, tuple[str, Callable[[Config, Config], None]]] = {
    "no end token": ("TPT111", without("eos_token")),
    "no padding token": ("TPT112", without("pad_token")),
    "padding is the end (trl#976)": ("TPT113", edited(pad_token="<|im_end|>")),
    "padding is unknown": ("TPT114", edited(pad_token="<s>", unk_token="<s>")),
    "tokens beyond the embedding (llama-cookbook#189)": ("TPT115", lambda _, sizes: sizes.update(vocab_size=600)),
    "a special token that is not there": ("TPT116", edited(pad_token="[PAD]")),
    "a template that is broken": ("TPT121", edited(chat_template="{% for message in %}")),
    "a template that always refuses": ("TPT121", edited(chat_template="{{ raise_exception('no') }}")),
    "a template that reaches out": ("TPT121", edited(chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}")),
    "a template that fills the memory": ("TPT121", edited(chat_template="{{ 'a' * 10000000000 }}")),
    "no generation prompt": ("TPT122", templated("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "")),
    "no end after the answer (trl#1623)": ("TPT123", templated("<|im_end|>", "")),
    "begin token twice in the template": ("TPT124", templated("{% for", "<s><s>{% for")),
    "begin token added twice (DeepSeek-R1#151)": (
        "TPT124",
        lambda config, _: config.update(chat_template="<s>" + TEMPLATE, add_bos_token=True),
    ),
    "system turn lost": ("TPT125", templated("{% for message in messages %}", "{% for message in messages if message.role != 'system' %}")),
    "answers lost": ("TPT125", templated("{% for message in messages %}", "{% for message in messages if message.role != 'assistant' %}")),
    "turns in another order": ("TPT125", templated("in messages", "in messages | reverse")),
    "a marker that is no token (axolotl#1770)": (
        "TPT126",
        lambda config, _: config.update(chat_template=TEMPLATE.replace("<|im_start|>", "<|turn|>")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTING_FAULTS)
def test_a_fault_beside_the_tokenizer_is_named(name: str, tmp_path: Path) -> None:
    config, sizes = healthy()
    code, change = SETTING_FAULTS[name]
    change(config, sizes)
    assert code in codes(judged(folder(tmp_path / "model", trained(), config, sizes), sentences()[:60]))


def test_the_healthy_tokenizer_has_no_finding(tmp_path: Path) -> None:
    report = judged(folder(tmp_path / "model", trained(), *healthy()), sentences()[300:400])
    assert (report.verdict, report.findings) == ("PASS", ())


def lowering(_: Path) -> Any:
    return trained(normalizer=tokenizers.normalizers.Lowercase())


def stripping(_: Path) -> Any:
    return trained(
        normalizer=tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.NFD(), tokenizers.normalizers.StripAccents()]
        )
    )


def joining(_: Path) -> Any:
    return trained(normalizer=tokenizers.normalizers.Replace(" ", ""))


def dropping(_: Path) -> Any:
    return trained(normalizer=tokenizers.normalizers.Replace("e", ""))


def words(_: Path) -> Any:
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return model


ACCENTED = ["Der Bär läuft über die Straße und hört etwas Schönes."] * 3
TEXT_FAULTS: dict[str, tuple[str, Callable[[Path], Any], list[str]]] = {
    "unknown words": ("TPT101", words, sentences()[:20]),
    "another script": ("TPT103", lambda _: trained(), [*sentences()[:80], "добрый день, как дела сегодня"]),
    "letters are dropped": ("TPT104", dropping, sentences()[:20]),
    "case is lost": ("TPT105", lowering, sentences()[:20]),
    "accents are lost": ("TPT106", stripping, ACCENTED),
    "spaces are lost": ("TPT107", joining, sentences()[:20]),
}


@pytest.mark.parametrize("name", TEXT_FAULTS)
def test_what_is_lost_of_texts_is_named(name: str, tmp_path: Path) -> None:
    code, model, texts = TEXT_FAULTS[name]
    assert code in codes(judged(folder(tmp_path / "model", model(tmp_path), *healthy()), texts))


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
    report = judged(plain, texts)
    told = next(finding for finding in report.findings if finding.rule == "TPT101")
    assert [point.line for point in told.evidence] == [51]
    assert "U+0151" in told.evidence[0].excerpt
    assert codes(judged(plain, sentences()[:50])) == set()
    fallback = pieces(tmp_path / "bytes.model", byte_fallback=True, hard_vocab_limit=False)
    assert "TPT102" in codes(judged(fallback, ["добрый день"] * 5))
    assert "TPT101" not in codes(judged(fallback, ["добрый день"] * 5))


def test_other_than_the_base(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", trained(), *healthy())
    more = trained()
    more.add_tokens(["<|new|>"])
    grown = folder(tmp_path / "grown", more, healthy()[0], {"vocab_size": 800})
    told = [finding for finding in judged(grown, [], base).findings if finding.rule == "TPT131"]
    assert [finding.severity for finding in told] == ["INFO"]
    other = tokenizers.Tokenizer.from_str(trained().to_str().replace("<pad>", "<nil>"))
    changed = folder(tmp_path / "other", other, *healthy())
    assert "FAIL" in {f.severity for f in judged(changed, [], base).findings if f.rule == "TPT131"}


@pytest.mark.parametrize("name", ["missing", "empty.json", "text.model", "tokenizer.pkl", "list.json"])
def test_hostile_tokenizers_are_one_line(name: str, tmp_path: Path) -> None:
    for file, content in (
        ("empty.json", "{}"),
        ("text.model", "nothing"),
        ("tokenizer.pkl", "cos\nsystem\n"),
        ("list.json", "[[["),
    ):
        (tmp_path / file).write_text(content)
    with pytest.raises(InputError) as error:
        read_tokenizer(str(tmp_path / name))
    assert "\n" not in str(error.value)
