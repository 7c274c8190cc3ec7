"""Mutated logs: every sample in tests/data, damaged in thousands of ways, is read and judged without a traceback.

`python -m tools.fuzz [COUNT]` reads COUNT mutated inputs a format (10,000 by default) and prints one line a sample. The same
seed makes the same inputs; a failure is printed with the seed and the number that make it again.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainproof.errors import TrainproofError
from trainproof.facts import Facts
from trainproof.frame import Source
from trainproof.judge import judge_run
from trainproof.readers.base import claimant, reader_for
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

DATA = Path(__file__).parents[1] / "tests" / "data"
SEED = 20260101
COUNT = 10_000
#: samples are cut to this, so that ten thousand are read in minutes
MOST_BYTES = 16 * 1024
#: seconds after which an input counts as one that hangs: a thousand times what it takes
SLOW = 10.0
#: every so many inputs, what was read is judged as well
JUDGED_EVERY = 20

#: what breaks parsers: numbers at the edges, marks of formats, halves of characters
TOKENS = (
    *(
        b"nan",
        b"-inf",
        b"1e400",
        b"-0.0",
        b"9" * 400,
        b"1e-320",
        b"0x10",
        b"1_000",
        b"1,000",
        b"18446744073709551616",
        b"-1",
    ),
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b"\t",
        b" " * 200,
        b",",
        b":",
        b"=",
        b"'",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b"|",
        b"%|",
    ),
    *(
        b"\x1b[31m",
        b"\x1b[",
        b"\x08",
        b"\xff",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
        b"\xf0\x9f",
        b"\xe6\x8d",
        b"\\u0000",
        b"\\ud800",
    ),
    *(
        b"step",
        b"loss",
        b"epoch",
        b"Traceback (most recent call last):",
        b"Killed",
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"{}",
    ),
)


def samples() -> list[Path]:
    """The logs in tests/data; expected outputs of the tests lie in goldens."""
    return sorted(
        path
        for path in DATA.rglob("*")
        if path.is_file() and "goldens" not in path.parts and path.suffix not in (".py", ".pyc", ".md")
    )


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to eight changes."""
    for _ in range(chance.randint(1, 8)):
        data = _changed(data, chance)
    return data


def _changed(data: bytes, chance: random.Random) -> bytes:
    """`data` with a byte flipped, or a piece of it cut, repeated, moved, or replaced by a token; or one end of it."""
    at = chance.randint(0, len(data))
    end = min(len(data), at + int(chance.expovariate(1 / 40)))
    before, piece, after = data[:at], data[at:end], data[end:]
    kind = chance.randrange(8)
    if kind == 0:
        return before + bytes([chance.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return before + after
    if kind == 2:
        return before + piece * chance.choice((2, 3, 50)) + after
    if kind == 3:
        return before + chance.choice(TOKENS) + piece + after
    if kind == 4:
        return before + chance.choice(TOKENS) + after
    if kind == 5:
        return after + piece + before
    return before if kind == 6 else piece + after


def inputs(sample: Path, count: int, seed: int = SEED) -> Iterator[bytes]:
    """`count` mutations of a sample; a large one is cut at a line's end first."""
    whole = sample.read_bytes()
    start = whole if len(whole) <= MOST_BYTES else whole[: whole.rfind(b"\n", 0, MOST_BYTES) + 1 or MOST_BYTES]
    for number in range(count):
        yield mutated(start, random.Random(f"{seed} {sample.name} {number}"))


def format_of(sample: Path) -> str | None:
    """The format that recognises the sample itself; None when none does."""
    reader = claimant(LogInput(str(sample)))
    return reader.name if reader is not None else None


def read(data: bytes, format_name: str, judged: bool) -> None:
    """Recognise `data`, read it as the format that it was, and perhaps judge it. Raises whatever is no TrainproofError."""
    log = LogInput("log", data)
    out = FrameBuilder()
    try:
        claimant(log)
        reader = reader_for(format_name)
        reader.read(log, out)
        frames = out.build(Source("log", format_name), Facts())
        for frame in frames if judged else ():
            judge_run(frame)
    except TrainproofError:
        return


def by_format() -> dict[str, list[Path]]:
    """The samples of each format; what no reader recognises (a run's settings, say) is no sample."""
    found: dict[str, list[Path]] = {}
    for sample in samples():
        if format_name := format_of(sample):
            found.setdefault(format_name, []).append(sample)
    return found


def failures(format_name: str, sample: Path, count: int, seed: int = SEED) -> list[str]:
    """What went wrong with mutations of a sample, one line each."""
    found: list[str] = []
    for number, data in enumerate(inputs(sample, count, seed)):
        where = f"{sample.relative_to(DATA)}, seed {seed}, number {number}"
        begin = time.perf_counter()
        try:
            read(data, format_name, number % JUDGED_EVERY == 0)
        except Exception as error:  # whatever it is, it is what this looks for
            found.append(f"{where}: {type(error).__name__}: {error}")
        if time.perf_counter() - begin > SLOW:
            found.append(f"{where}: took more than {SLOW:g} s")
    return found


def main(arguments: Sequence[str]) -> int:
    count = int(arguments[0]) if arguments else COUNT
    warnings.simplefilter("error")
    failed = 0
    for format_name, found in by_format().items():
        begin = time.perf_counter()
        told = [line for sample in found for line in failures(format_name, sample, -(-count // len(found)))]
        failed += len(told)
        print(f"{format_name:20} {count} inputs, {len(told)} failures, {time.perf_counter() - begin:.0f} s", flush=True)
        for line in told[:20]:
            print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
