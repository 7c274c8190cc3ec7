"""Tokenizers with known faults, and their clean twin: byte-level BPE over the sentences of the fault sets of text.

python -m tools.tokenizer_faults FOLDER

writes a folder a fault, each with tokenizer.json, tokenizer_config.json, config.json, model.safetensors and texts.txt.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tools.text_faults import sentences

MARKERS = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: rows of the embedding: the vocabulary and a few to spare
ROWS = 704
ACCENTED = ["Der Bär läuft über die Straße und hört etwas Schönes."] * 3
CYRILLIC = "добрый день, как дела сегодня"


class Case(NamedTuple):
    """A tokenizer with what lies beside it, and texts."""

    model: Any
    config: dict[str, Any]
    sizes: dict[str, Any]
    texts: list[str]
    embedding: NDArray[np.float32] | None = None


Fault = Callable[[Case], Case]


@cache
def _trained() -> str:
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=MARKERS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator(sentences()[:300], trainer)
    return str(model.to_str())


def trained(**options: Any) -> Any:
    """The tokenizer, with another normalizer or the like."""
    model = tokenizers.Tokenizer.from_str(_trained())
    for name, value in options.items():
        setattr(model, name, value)
    return model


def clean_case() -> Case:
    """Nothing to be told of it."""
    config = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    embedding = np.random.default_rng(4).normal(0, 0.02, (ROWS, 8)).astype(np.float32)
    return Case(trained(), config, {"vocab_size": ROWS}, sentences()[150:], embedding)


def _config(**values: Any) -> Fault:
    return lambda case: case._replace(config=case.config | values)


def _without(name: str) -> Fault:
    return lambda case: case._replace(config={key: value for key, value in case.config.items() if key != name})


def _template(old: str, new: str) -> Fault:
    return _config(chat_template=TEMPLATE.replace(old, new))


def _loop(only: str) -> Fault:
    return _template("{% for message in messages %}", f"{{% for message in messages {only} %}}")


def _texts(*texts: str) -> Fault:
    return lambda case: case._replace(texts=[*case.texts, *texts])


def _normalized(*steps: Any) -> Fault:
    return lambda case: case._replace(model=trained(normalizer=normalizers.Sequence(list(steps))))


def _rows(change: Callable[[NDArray[np.float32]], None]) -> Fault:
    def fault(case: Case) -> Case:
        assert case.embedding is not None
        rows = case.embedding.copy()
        change(rows)
        return case._replace(embedding=rows)

    return fault


def _zero(rows: NDArray[np.float32]) -> None:
    rows[3] = 0


def _equal(rows: NDArray[np.float32]) -> None:
    rows[3:5] = rows.mean(axis=0)


def _words(case: Case) -> Case:
    model = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return case._replace(model=model, config={"eos_token": "the", "pad_token": "[UNK]"}, embedding=None)


def _merged_digits(case: Case) -> Case:
    document = json.loads(_trained())
    document["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    vocabulary = document["model"]["vocab"]
    for pair in ("19", "20", "84", "00", "12"):
        vocabulary[pair] = len(vocabulary)
        document["model"]["merges"].append(list(pair))
    numbers = [f"in {1900 + 7 * i} and {2000 + 3 * i}" for i in range(90)]
    return case._replace(model=tokenizers.Tokenizer.from_str(json.dumps(document)), texts=[*case.texts, *numbers])


def _wide(case: Case) -> Case:
    model = trained()
    model.add_tokens([f"never{i}" for i in range(3000)])
    return case._replace(model=model, sizes={"vocab_size": 4000}, embedding=None, texts=case.texts * 60)


def _merging(case: Case) -> Case:
    document = json.loads(_trained())
    vocabulary = document["model"]["vocab"]
    vocabulary["?Ċ"] = len(vocabulary)  # a line break is learned with what stands before it
    document["model"]["merges"].insert(0, ["?", "Ċ"])
    document["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    marker = "{{ '\\n### Answer:\\n' }}"
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}" + marker + "{{ m.content }}<|im_end|>{% else %}"
        "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}" + marker + "{% endif %}"
    )
    return case._replace(
        model=tokenizers.Tokenizer.from_str(json.dumps(document)), config=case.config | {"chat_template": template}
    )


#: name -> (the check that names it, how the clean tokenizer is broken)
TOKENIZER_FAULTS: dict[str, tuple[str, Fault]] = {
    "no end token": ("TPT111", _without("eos_token")),
    "no padding token": ("TPT112", _without("pad_token")),
    "padding is the end (trl#976, unsloth#416)": ("TPT113", _config(pad_token="<|im_end|>")),
    "padding is unknown": ("TPT114", _config(pad_token="<s>", unk_token="<s>")),
    "tokens beyond the configured embedding (llama-cookbook#189)": (
        "TPT115", lambda case: case._replace(sizes={"vocab_size": 600}, embedding=None),
    ),
    "tokens beyond the embedding itself": ("TPT115", lambda case: case._replace(embedding=case.embedding[:650] if case.embedding is not None else None)),
    "a special token that is not there": ("TPT116", _config(pad_token="[PAD]")),
    "markers of the template never trained (unsloth#915)": ("TPT117", _rows(_zero)),
    "markers of the template with one row for all": ("TPT117", _rows(_equal)),
    "a template that is broken": ("TPT121", _config(chat_template="{% for message in %}")),
    "a template that always refuses": ("TPT121", _config(chat_template="{{ raise_exception('no') }}")),
    "a template that reaches out": ("TPT121", _config(chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}")),
    "a template that reaches out by a filter": ("TPT121", _config(chat_template="{{ (''|attr('__class__')).mro() }}")),
    "a template that calls a method of globals": ("TPT121", _config(chat_template="{{ raise_exception.__globals__['sys'].exit(0) }}")),
    "a template that imports another": ("TPT121", _config(chat_template="{% include '/etc/passwd' %}")),
    "a template that fills the memory": ("TPT121", _config(chat_template="{{ 'a' * 10000000000 }}")),
    "a template that fills the memory by doubling": (
        "TPT121", _config(chat_template="{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}"),
    ),
    "a template that fills the memory by padding": ("TPT121", _config(chat_template="{{ 'a'|center(100000000000) }}")),
    "a template with a long range": ("TPT121", _config(chat_template="{% for i in range(10 ** 9) %}{% endfor %}")),
    "no generation prompt": ("TPT122", _template("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "")),
    "no end after the answer (trl#1623)": ("TPT123", _template("<|im_end|>", "")),
    "no end after all answers but the last": (
        "TPT123", _template("<|im_end|>\n", "{% if loop.last or message.role == 'user' %}<|im_end|>{% endif %}\n"),
    ),
    "begin token twice in the template": ("TPT124", _template("{% for", "<s><s>{% for")),
    "begin token added twice (DeepSeek-R1#151)": ("TPT124", _config(chat_template="<s>" + TEMPLATE, add_bos_token=True)),
    "system turn lost": ("TPT125", _loop("if message.role != 'system'")),
    "answers lost": ("TPT125", _loop("if message.role != 'assistant'")),
    "turns in another order": ("TPT125", _loop("| reverse")),
    "a marker that is no token (axolotl#1770)": ("TPT126", _template("<|im_start|>", "<|turn|>")),
    "the marker of an answer merges with the question (trl#1920)": ("TPT127", _merging),
    "unknown words": ("TPT101", _words),
    "one text of another script": ("TPT103", _texts(CYRILLIC)),
    "texts of a script that it never saw": ("TPT109", _texts(*[f"{CYRILLIC} {i}" for i in range(30)])),
    "letters are dropped": ("TPT104", _normalized(normalizers.Replace("e", ""))),
    "case is lost": ("TPT105", _normalized(normalizers.Lowercase())),
    "accents are lost": (
        "TPT106", lambda case: _normalized(normalizers.NFD(), normalizers.StripAccents())(case)._replace(texts=ACCENTED),
    ),
    "spaces are lost": ("TPT107", _normalized(normalizers.Replace(" ", ""))),
    "numbers are split in many ways": ("TPT108", _merged_digits),
    "most of the vocabulary is never used": ("TPT118", _wide),
}  # fmt: skip


def write(folder: Path, case: Case) -> Path:
    """The tokenizer as a folder of Hugging Face, and its texts beside it; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    case.model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(case.config), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(case.sizes), encoding="utf-8")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in case.texts), encoding="utf-8")
    if case.embedding is not None:
        entry = {"dtype": "F32", "shape": case.embedding.shape, "data_offsets": [0, case.embedding.nbytes]}
        header = json.dumps({"model.embed_tokens.weight": entry}).encode()
        body = struct.pack("<Q", len(header)) + header + case.embedding.tobytes()
        (folder / "model.safetensors").write_bytes(body)
    return folder


def main(folder: Path) -> None:
    write(folder / "clean", clean_case())
    for number, (_, fault) in enumerate(TOKENIZER_FAULTS.values()):
        write(folder / f"fault-{number:02}", fault(clean_case()))
    truth = {f"fault-{number:02}": [name, code] for number, (name, (code, _)) in enumerate(TOKENIZER_FAULTS.items())}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
