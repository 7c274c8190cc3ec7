"""Lines of `key: value` or `key=value` that no known logger printed: the last resort, and the report says so.

A text is claimed when at least 12 of its lines share a loss and what counts them, or fewer whose counter goes on evenly. The counter
may stand in the line or in a headline before it; where there is none, the records are counted. Where no line has a loss, another
metric will do. What is read this way was guessed, so the findings on it are warnings at most, unless a value is not finite.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Floats
from trainproof.names import EVAL_PREFIXES, higher_is_better, plain, resolve
from trainproof.readers.base import FURTHER_BYTES
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import LOSS, ConsoleReader, Reading
from trainproof.readers.console.fields import COUNTERS, STRICT_FIELD, Cells, columns_of, fields_of
from trainproof.readers.console.line import Batch, Line
from trainproof.readers.console.spellings import LOSS_MARKS, METRIC_MARKS, as_fields
from trainproof.readers.console.text import Block, Piece, Span, cleaned, pieces
from trainproof.readers.source import LogInput

#: lines that must share a counter and a loss for a text to be a log
SHARED_LINES = 12
#: lines that are enough where their counter goes on evenly
COUNTED_LINES = 4
#: lines from which it is learned what counts them
LEARNED_LINES = 2000
#: share of lines in which a counter may stay as it was and still number them
STANDING_SHARE = 0.1
#: headlines a record, at least and at most, for the headlines to count the records
HEADLINES = (0.8, 1.25)
_LOSS = re.compile(
    r"(?:\A|[ _])(?:xent|cross[ _-]?entropy|nll)\Z|\A(?:(?:avg|average|mean|total|train)[ _])?cost\Z", re.IGNORECASE
)
_DIGIT = re.compile(rb"\d|nan|inf", re.IGNORECASE)
_EPOCH = re.compile(r"(?:.*[ _])?epochs?\Z", re.IGNORECASE)
_HEADLINE = re.compile(
    rb"^[^\n]{0,120}?\b((?i:epoch|iteration|iter|step|round|update))[ \t:=#\[(]{1,4}(\d{1,12})\b(?![.:]\d)[^\n]*$",
    re.MULTILINE,
)
#: what a line of an evaluation holds before its first metric: it has no word of training before it or behind it
_EVALUATION = r"(?i:(?=(?:(?!train|loss|acc|best)[^\n]){0,200}?\b(?:validation|valid|vali?|eval(?:uat\w+)?|dev|test(?:ing)?)\b)(?![^\n]*\btrain))"
#: texts of which one is in each line of an evaluation
_EVALUATION_WORDS = ("val", "Val", "VAL", "est", "EST", "dev", "Dev", "DEV")
_IS_EVALUATION = re.compile(_EVALUATION.encode())


class Plan(NamedTuple):
    """What counts the records (None: their order), what tells the epoch, the metric that they share, and whether headlines count."""

    step: str | None
    epoch: str | None
    metric: str
    headlines: bool = False


class Found(NamedTuple):
    """A line with a metric: what counts it, its main metric, all its values, and whether it is of an evaluation."""

    counters: tuple[str, ...]
    metric: str
    values: Mapping[str, bytes]
    evaluates: bool


class GenericReader:
    name = "generic-text"
    description = "lines of `key: value` or `key=value` with a loss or another metric (a guess)"

    def sniff(self, head: bytes) -> float:
        text = as_fields(cleaned(head))
        return 0.3 if _plan([Block(text, np.arange(text.count(b"\n")))]) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        plan = _plan(list(_first_blocks(log)))
        if plan is None:
            raise FormatError(
                f"{log.path}: no {SHARED_LINES} lines in it that share a step and a loss as `key: value`, expected a log"
            )
        counter = plan.step or f"the order of the lines{f' ({plan.epoch} stands still)' if plan.epoch else ''}"
        kind = "loss" if _is_loss(plan.metric) else "metric"
        out.guess(f"read as lines of `key: value`, counted by {counter}, with the {kind} {plan.metric!r}")
        _GenericReading(_Planned(plan), out, plan).run(log)


class _Planned(ConsoleReader):
    """The lines that the plan speaks of, and other lines with a loss or of an evaluation, which stand at the step before."""

    name = GenericReader.name
    description = GenericReader.description

    def __init__(self, plan: Plan) -> None:
        measured = rf"(?=[^\n]*(?:oss|cc|{re.escape(plan.metric)}))"
        self.lines = (
            *(Line(word, measured + _EVALUATION, strict=True, prefix="eval_") for word in _EVALUATION_WORDS),
            Line(plan.metric, "", strict=True, counted=plan.step is None),
            Line("oss", "", strict=True),
            Line("eward", "", strict=True),
        )
        if plan.headlines and plan.step:
            head = rf"[^\n]{{0,120}}?\b{plan.step}[ \t:=#\[(]{{1,4}}(?P<step>\d{{1,12}})\b(?![.:]\d)"
            self.lines += (Line(plan.step, head, "", r"[^\n]*"),)

    def metric(self, line: Line, name: str) -> str:
        """An evaluation's metric that says so itself keeps its name."""
        own = bool(line.prefix) and name.startswith((*EVAL_PREFIXES, "test_", "test/"))
        return name if own else super().metric(line, name)


class _GenericReading(Reading):
    def __init__(self, reader: ConsoleReader, out: FrameBuilder, plan: Plan) -> None:
        super().__init__(reader, out)
        self._plan = plan

    def pieces(self, log: LogInput) -> Iterator[Piece]:
        return _spelled_out(log)

    def settled(self, batches: list[Batch]) -> list[Batch]:
        return [batch._replace(columns=self._named(batch)) for batch in batches]

    def _named(self, batch: Batch) -> dict[str, Cells]:
        """The columns with the plan's counters as the step and the epoch, and without other counters.

        Where records carry their counter, a line without it that has their metric again is none of them.
        """
        if not batch.line.fields:  # a headline
            return batch.columns
        step = _counter(self._plan.step, batch.columns)
        epoch = None if batch.line.prefix else self._plan.epoch
        names = {epoch: "epoch", step: "step"}
        names |= {name: "loss" for name in batch.columns if plain(name).endswith("cost") and _is_loss(name)}
        if step is not None and _word(step) == "episode":
            names |= {name: "reward" for name in batch.columns if plain(name) == "score"}
        again = step is None and self._plan.step and not self._plan.headlines and not batch.line.prefix
        return {
            names.get(name, plain(name)): cells
            for name, cells in batch.columns.items()
            if name in names or not (_counts(name) or (again and plain(name) == plain(self._plan.metric)))
        }


def _counter(step: str | None, columns: Iterable[str]) -> str | None:
    """The column that is the plan's counter; in lines of another kind, one of the same word."""
    names = list(columns)
    if step is None or step in names:
        return step if step in names else None
    return next((name for name in names if _word(name) == _word(step)), None)


def _word(name: str) -> str:
    return re.split(r"[ _/]", name.lower())[-1]


def _counts(name: str) -> bool:
    """Whether the last word of a name is one that counts."""
    return _word(name) in COUNTERS


def _is_loss(name: str) -> bool:
    return bool(LOSS.search(name) or _LOSS.search(name))


def _spelled_out(log: LogInput) -> Iterator[Piece]:
    """The log, with all that is a field spelled as one."""
    for (text, numbers), soft in pieces(log):
        yield Piece(Block(as_fields(text), numbers), soft)


def _first_blocks(log: LogInput) -> Iterator[Block]:
    seen = 0
    for block, _ in _spelled_out(log):
        yield block
        seen += len(block.text)
        if seen >= FURTHER_BYTES:
            return


def _plan(blocks: list[Block]) -> Plan | None:
    """What the lines share; None when too few of them share a metric and what counts them."""
    losses = _found(blocks, LOSS_MARKS, _is_loss)
    return (
        _counted(losses)
        or _uncounted(losses, blocks)
        or _counted(_found(blocks, METRIC_MARKS, lambda name: higher_is_better(name) is not None))
    )


def _found(blocks: list[Block], marks: Iterable[bytes], is_metric: Callable[[str], bool]) -> list[Found]:
    """The first lines with a metric; those of evaluations only where there are no others."""
    spans = ((block, span) for block in blocks for span in _spans(block, marks))
    found = list(islice(_read(spans, is_metric), LEARNED_LINES))
    return [line for line in found if not line.evaluates] or found


def _spans(block: Block, marks: Iterable[bytes]) -> list[Span]:
    return sorted({span for mark in marks for span in block.lines_with(mark)})


def _read(spans: Iterable[tuple[Block, Span]], is_metric: Callable[[str], bool]) -> Iterator[Found]:
    for block, span in spans:
        text = block.text[span.begin : span.end]
        if not _DIGIT.search(text):
            continue
        names, values = fields_of(text, STRICT_FIELD)
        metrics = tuple(name for name in dict.fromkeys(names) if is_metric(name) and not _counts(name))
        if metrics:
            counters = tuple(dict.fromkeys(name for name in names if _counts(name)))
            by_name = dict(zip(reversed(names), reversed(values), strict=True))
            yield Found(counters, _main(metrics), by_name, _IS_EVALUATION.match(text) is not None)


@lru_cache(1000)
def _main(metrics: tuple[str, ...]) -> str:
    """The one that is the loss, by the table of names; else the first."""
    ours = resolve(metrics)
    return next((name for name in metrics if ours[name] == "loss"), metrics[0])


def _counted(lines: list[Found]) -> Plan | None:
    """The plan of lines that carry what counts them."""
    shared = Counter((line.counters, line.metric) for line in lines if line.counters)
    if not shared:
        return None
    (counters, metric), count = shared.most_common(1)[0]
    rows = [line.values for line in lines if line.counters == counters and line.metric == metric]
    columns = columns_of([row[name] for row in rows for name in counters], len(counters))
    numbering = {name: cells.values for name, cells in zip(counters, columns, strict=True) if _numbers(cells.values)}
    epoch = next((name for name in counters if _EPOCH.match(name)), None)
    step = next((name for name in numbering if name != epoch), epoch if epoch in numbering else None)
    if count < SHARED_LINES and (step is None or not _goes_evenly(numbering[step])):
        return None
    return Plan(step, epoch if epoch != step else None, metric)


def _uncounted(lines: list[Found], blocks: list[Block]) -> Plan | None:
    """The plan of lines that carry no counter: headlines count them, or their order."""
    shared = Counter(line.metric for line in lines if not line.counters)
    if not shared:
        return None
    metric, count = shared.most_common(1)[0]
    headlines: dict[str, list[float]] = {}
    for match in (match for block in blocks for match in _HEADLINE.finditer(block.text)):
        headlines.setdefault(match[1].decode(), []).append(float(match[2]))
    for word, numbers in headlines.items():
        values = np.array(numbers)
        fitting = HEADLINES[0] * count <= len(values) <= HEADLINES[1] * count and _numbers(values)
        if fitting and (count >= SHARED_LINES or _goes_evenly(values)):
            return Plan(word, None, metric, headlines=True)
    return Plan(None, None, metric) if count >= SHARED_LINES else None


def _numbers(values: Floats) -> bool:
    """Whether a counter has whole numbers that hardly ever stand still from one record to the next."""
    whole = bool((np.isfinite(values) & (np.floor(values) == values)).all())
    return whole and len(values) > 1 and float((np.diff(values) == 0).mean()) <= STANDING_SHARE


def _goes_evenly(values: Floats) -> bool:
    """Whether a counter goes on by the same number each time, often enough for a text of so few lines to be a log."""
    steps = np.diff(values)
    return len(values) >= COUNTED_LINES and bool((steps == steps[0]).all() and steps[0] > 0)
