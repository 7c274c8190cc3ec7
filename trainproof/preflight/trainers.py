"""What trainers do with records that are over their limits: a small table, each number with its source.

The numbers are the trainers' defaults as of 2026-11; --max-length gives the run's own length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trainproof.errors import UsageError

LEAVES_OUT, CUTS, STOPS = "leaves out", "cuts", "stops at"


class Limit(NamedTuple):
    """Records whose measure is over `most` or under `least`, and what the trainer does with them."""

    does: str
    least: float = -math.inf
    most: float = math.inf


class Trainer(NamedTuple):
    """One trainer. seconds: limits of the sound; labels: of its label, in `unit`s, unless --max-length says other."""

    kinds: tuple[str, ...]
    seconds: tuple[Limit, ...] = ()
    labels: tuple[Limit, ...] = ()
    unit: str = "tokens"
    added: int = 0  # tokens that the trainer adds to every label
    fields: tuple[tuple[str, ...], ...] = ()  # that it reads, one choice or another; none: it is told which
    alternate: bool = False  # leaves out conversations that do not alternate
    keeps_answer: bool = False  # an answer is never cut off as a whole
    unknown: bool = False  # leaves out labels with unknown tokens
    characters: dict[str, int] = {}  # noqa: RUF012  most characters by language, never written to
    declared: bool = False  # goes by the duration of the manifest
    frames: tuple[tuple[str, float], ...] = ()  # encoder frames a second for a CTC loss, by model
    held_back: tuple[int, float] = (0, 0.0)  # records and share of them that it takes for its evaluation


#: phonemes a character: espeak-ng 1.51 gave 0.93 to 1.26, median 1.07, on 250 English sentences
PHONEMES = 0.95

TRAINERS = {
    # rhasspy/piper: vits/dataset.py leaves out utterances over --max-phoneme-ids (default: none); vits/lightning.py takes
    # num_test_examples = 5 and validation_split = 0.1 before it trains. Ids: every phoneme and the padding after it, and three more.
    "piper": Trainer(("speech",), unit="phoneme ids", held_back=(5, 0.1), labels=(Limit(LEAVES_OUT),)),
    # coqui-ai/TTS: layers/xtts/trainer/dataset.py leaves out clips under 0.5 s, over max_wav_length, texts over max_text_length tokens
    # (255,995 samples of 22.05 kHz and 200 in the recipe) and texts with unknown tokens; layers/xtts/tokenizer.py has the characters.
    "xtts": Trainer(
        ("speech",),
        seconds=(Limit(LEAVES_OUT, least=0.5), Limit(LEAVES_OUT, most=255_995 / 22_050)),
        labels=(Limit(LEAVES_OUT, most=200),),
        added=1,
        unknown=True,
        characters={
            "en": 250, "de": 253, "fr": 273, "es": 239, "it": 213, "pt": 203, "pl": 224, "zh": 82, "ar": 166, "cs": 186, "ru": 182,
            "nl": 251, "tr": 226, "ja": 71, "hu": 224, "ko": 95,
        },
    ),
    # huggingface/transformers: WhisperFeatureExtractor cuts at 30 s; modeling_whisper.py raises over 448 labels, four of which are
    # the markers of language, task, time stamps and end.
    "whisper": Trainer(("speech",), seconds=(Limit(CUTS, most=30.0),), labels=(Limit(STOPS, most=448),), added=4),
    # NVIDIA/NeMo: examples/asr/conf/conformer/conformer_ctc_bpe.yaml (min_duration 0.1, max_duration 16.7, 10 ms frames, subsampling
    # 4) and conf/fastconformer (subsampling 8); the manifest's duration decides. Its loss zeroes what CTC cannot align.
    "nemo-ctc": Trainer(
        ("speech",),
        seconds=(Limit(LEAVES_OUT, least=0.1), Limit(LEAVES_OUT, most=16.7)),
        declared=True,
        frames=(("Conformer", 25.0), ("FastConformer", 12.5)),
    ),
    # huggingface/trl: SFTConfig.max_length = 1024, truncation_mode = keep_start; the data formats of its documentation.
    "trl-sft": Trainer(
        ("text", "chat"),
        labels=(Limit(CUTS, most=1024),),
        fields=(("messages",), ("conversations",), ("prompt", "completion"), ("text",)),
    ),
    # axolotl-ai-cloud/axolotl: sequence_len = 512, excess_length_strategy = drop, min_sample_len = 2.
    "axolotl": Trainer(
        ("text", "chat"), labels=(Limit(LEAVES_OUT, least=2), Limit(LEAVES_OUT, most=512)), keeps_answer=True
    ),
    # hiyouga/LLaMA-Factory: cutoff_len = 2048, shared between prompt and answer (processor_utils.infer_seqlen); converter.py skips
    # conversations that do not alternate.
    "llama-factory": Trainer(
        ("text", "chat"), labels=(Limit(CUTS, most=2048),), alternate=True, keeps_answer=True
    ),
}  # fmt: skip


def checked_trainer(name: str | None, kind: str, language: str | None) -> None:
    """Raises UsageError for a trainer that does not train on such data, or has no limits for the language."""
    if name is None:
        if language is not None:
            raise UsageError("--language is for a --trainer whose limits depend on it")
        return
    trainer = TRAINERS[name]
    if kind not in trainer.kinds:
        raise UsageError(f"--trainer {name} is for {' and '.join(trainer.kinds)} data; this is {kind} data")
    if language is not None and language not in trainer.characters:
        known = ", ".join(sorted(trainer.characters)) or "none"
        raise UsageError(f"--language {language}: {name} has limits for {known}")


def context_of(name: str | None) -> int | None:
    """Tokens that the trainer's context has by default, for text and chat."""
    if name is None or "speech" in TRAINERS[name].kinds:
        return None
    return int(min(limit.most for limit in TRAINERS[name].labels))
