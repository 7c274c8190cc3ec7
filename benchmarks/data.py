"""Checks of chat rows against msgspec decoding their lines, of a tokenizer against its own encoding, and of sounds against soundfile.

python -m benchmarks.data [ROWS [CLIPS [TEXTS]]]: prints processor seconds (of the process and its children, the least of three, taken in turn),
peak memory and ratios. Every measurement is a process of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write

ROUNDS = 3
#: prints the processor seconds since it began to work, and the peak of its own resident memory in MiB
MEASURE = """
import re, sys, time
paths = sys.argv[1:]
{before}
begin = time.process_time()
{work}
spent = time.process_time() - begin
print(spent, int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) / 1024)
"""
DECODE = (
    "import msgspec; decode = msgspec.json.Decoder().decode",
    """
for path in paths:
    with open(path, "rb") as lines:
        for line in lines:
            try:
                decode(line)
            except ValueError:
                pass
""",
)
JUDGE = (
    """
from trainproof.judge import Settings
from trainproof.preflight.found import Found, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight.running import partial_of, run_pieces, whole_of
""",
    """
plan = plan_of(paths[:1], paths[1:], None, Options(near={near}))
whole = whole_of(plan, run_pieces(plan, plan.pieces, 1))
judge_found(Found(plan.kind, plan.files, whole, plan.options), "data", plan.kind, Settings())
""",
)
#: the same in two processes; prints the processor seconds of this one, and of both together
TWICE = """
import resource, sys, time
from trainproof.preflight_command import DataOptions, run_data
begin = time.process_time()
run_data(DataOptions(tuple(sys.argv[1:]), workers={workers}), {{"output_format": "json", "no_html": True, "quiet": True, "output": "/dev/null"}})
print(time.process_time() - begin, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))
"""
TEXTS = """
from trainproof.preflight import encoding
texts = [text for _, _, text, _ in encoding._texts(paths[1:])]
"""
#: the libraries' own encoding, one text at a time
ENCODE = {
    "tokenizer.json": (
        TEXTS + "import tokenizers; model = tokenizers.Tokenizer.from_file(paths[0])",
        "for text in texts: model.encode(text, add_special_tokens=False).ids",
    ),
    "SentencePiece, BPE": (
        TEXTS + "import sentencepiece; model = sentencepiece.SentencePieceProcessor(model_file=paths[0])",
        "for text in texts: model.encode(text)",
    ),
}
ENCODE["SentencePiece, unigram"] = ENCODE["SentencePiece, BPE"]
TOKENIZER = (
    """
from trainproof.apart import Subject, judge_apart
from trainproof.judge import Settings
from trainproof.preflight.encoding import tokenized
""",
    """
found = tokenized(paths[0], paths[1:], None)
judge_apart("tokenizer", found, Subject(paths[0], "tokenizer", "", len(found.texts)), Settings())
""",
)
SOUNDS = (
    "import soundfile; from pathlib import Path",
    "for path in sorted(Path(paths[0]).rglob('*.wav')): soundfile.read(path, dtype='float32')",
)


def measured(code: tuple[str, str], *paths: Path) -> tuple[float, float]:
    """(processor seconds, peak MiB) of a process that does this."""
    script = MEASURE.format(before=code[0], work=code[1])
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)], capture_output=True, text=True, check=True, cwd=Path()
    )
    seconds, peak = map(float, done.stdout.split()[-2:])
    return seconds, peak


def judging(near: bool) -> tuple[str, str]:
    return JUDGE[0], JUDGE[1].format(near=near)


def compare(base: tuple[str, str], what: dict[str, tuple[str, str]], *paths: Path) -> None:
    """Print each as a ratio to the base."""
    turns = [[measured(code, *paths) for code in (base, *what.values())] for _ in range(ROUNDS)]
    least = [min(column) for column in zip(*turns, strict=True)]
    for name, (seconds, peak) in zip(("base", *what), least, strict=True):
        print(f"{name:40} {seconds:8.2f} s {peak:7.0f} MiB {seconds / least[0][0]:6.2f}", flush=True)


def balance(path: Path) -> None:
    """How much faster two processes could be than one: what the first has to do alone, and half of the rest."""
    seconds: dict[int, list[tuple[float, ...]]] = {1: [], 2: []}
    for workers in (1, 2) * ROUNDS:
        script = TWICE.format(workers=workers)
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
        seconds[workers].append(tuple(map(float, done.stdout.split()[-2:])))
    one, (alone, shared) = min(seconds[1])[0], min(seconds[2], key=sum)
    print(
        f"one process {one:.2f} s; two: {alone:.2f} s alone and {shared:.2f} s shared: at best {one / (alone + shared / 2):.2f} x"
    )


def on_the_clock(*paths: Path) -> None:
    """The exact checks as a user runs them, in as many processes as there are processors, against decoding the lines in one; both from their start."""
    command = [
        sys.executable, "-m", "trainproof", "data", str(paths[0]), "--eval", str(paths[1]), "--no-near", "-q", "--no-html",
        "--output-format", "json", "-o", "/dev/null",
    ]  # fmt: skip
    decode = [sys.executable, "-c", "import sys; paths = sys.argv[1:]\n" + "\n".join(DECODE), *map(str, paths)]
    seconds: dict[str, list[float]] = {"decode": [], "check": []}
    for name, run in [("decode", decode), ("check", command)] * ROUNDS:
        begin = time.perf_counter()
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        seconds[name].append(time.perf_counter() - begin)
    base, whole = min(seconds["decode"]), min(seconds["check"])
    print(f"on the clock: decoding {base:.2f} s, exact checks by the command {whole:.2f} s, {whole / base:.2f} x")


def mixed_chats(folder: Path, rows: int) -> Path:
    """Conversations with lists, code, quotes and signs of other scripts, as they are on the web: the paragraphs of Python's own documentation."""
    rng = random.Random(3)
    paragraphs = [text.strip() for topic in topics.values() for text in topic.split("\n\n") if 80 < len(text) < 900]
    beyond = (
        "\u00c7a va tr\u00e8s bien, merci \u2013 l\u2019\u00e9t\u00e9 arrive.",
        "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002",
        "\u0412\u0441\u0451 \u0445\u043e\u0440\u043e\u0448\u043e.",
    )
    lines: list[bytes] = []
    for row in range(rows):
        turns = []
        for _ in range(rng.randint(1, 3)):
            answer = "\n\n".join([*rng.sample(paragraphs, rng.randint(1, 3)), *rng.choices((*beyond, ""), k=1)])
            asked = f"({rng.randrange(10**6)}) {rng.choice(paragraphs)[:300]}"
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        record = {"id": f"chat_{row}", "messages": turns}
        lines.append(json.dumps(record, ensure_ascii=False).encode())
    return write(folder / "mixed.jsonl", lines)


def chats(folder: Path, rows: int) -> tuple[Path, Path]:
    """Conversations, one in a thousand of which is broken, nine tenths of them for training."""
    lines, _ = with_faults(list(clean_chats(rows)), CHAT_FAULTS, max(1, rows // 50_000))
    cut = rows * 9 // 10
    return write(folder / "train.jsonl", lines[:cut]), write(folder / "valid.jsonl", lines[cut:])


def tokenizers_in(folder: Path) -> dict[str, Path]:
    """Those that ENCODE names, trained on the same sentences."""
    import sentencepiece

    from tools.text_faults import sentences
    from tools.tokenizer_faults import clean_case
    from tools.tokenizer_faults import write as write_tokenizer

    models = {"tokenizer.json": write_tokenizer(folder / "tokenizer", clean_case()) / "tokenizer.json"}
    for kind in ("bpe", "unigram"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences()),
            model_prefix=str(folder / kind),
            model_type=kind,
            vocab_size=700,
            character_coverage=1.0,
            byte_fallback=True,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        models[f"SentencePiece, {'BPE' if kind == 'bpe' else kind}"] = folder / f"{kind}.model"
    return models


def main(rows: int, clips: int, texts: int = 50_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if rows:
            both = chats(folder, rows)
            print(f"{rows:,} chat rows, {sum(path.stat().st_size for path in both) / 1e6:.0f} MB, against msgspec")
            compare(DECODE, {"exact checks": judging(False), "with near duplicates": judging(True)}, *both)
            on_the_clock(*both)
            balance(both[0])
            mixed = mixed_chats(folder, rows // 5)
            print(f"{rows // 5:,} conversations with code and other scripts, {mixed.stat().st_size / 1e6:.0f} MB")
            compare(DECODE, {"exact checks": judging(False), "with near duplicates": judging(True)}, mixed)
        if texts:
            said = write(folder / "texts.jsonl", [json.dumps(chat).encode() for chat in clean_chats(texts // 4)])
            print(f"{texts // 4:,} conversations, against the tokenizer's own encoding")
            for kind, model in tokenizers_in(folder).items():
                compare(ENCODE[kind], {f"{kind}, all checks": TOKENIZER}, model, said)
        if clips:
            from tools.speech_faults import clean_items, write_pack

            pack = write_pack(folder / "pack", clean_items(clips))
            print(json.dumps({"clips": clips}), "against soundfile")
            compare(SOUNDS, {"all speech checks": judging(True)}, pack)


if __name__ == "__main__":
    main(*([int(text) for text in sys.argv[1:]] or [200_000, 2000, 50_000]))
