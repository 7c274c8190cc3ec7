"""What a reader is. Adding a log format is one module with one such class, named in READERS, and its test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol, TypeGuard

from trainproof import plugins
from trainproof.errors import FormatError, UsageError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import HEAD_BYTES, LogInput


class Entry(NamedTuple):
    """Where a reader is ("module:class"), and texts of which at least one is in the head of every log that it recognises.

    Without one of its marks in it, a log does not even lead to the reader's import. anywhere: the records may begin far down, and
    any part of the log tells the format.
    """

    where: str
    marks: tuple[bytes, ...] = (b"",)
    anywhere: bool = False


def _console(where: str, *marks: bytes) -> Entry:
    """A reader of console output, whose records may begin far down."""
    return Entry(f"trainproof.readers.console.{where}", marks, anywhere=True)


#: format name -> reader, in the order in which they are asked, and in which equal sniffing scores are decided
READERS = {
    "hf": Entry("trainproof.readers.hf:HFReader", (b"{",)),
    "llamafactory": Entry("trainproof.readers.llamafactory:LlamaFactoryReader", (b'"current_steps"',)),
    "detectron2": Entry("trainproof.readers.detectron2:Detectron2Reader", (b'"iteration"',)),
    "mmengine": Entry("trainproof.readers.mmengine:MMEngineReader", (b'"iter"',)),
    "detr": Entry("trainproof.readers.detr:DETRReader", (b'"train_loss"',)),
    "stylegan": Entry("trainproof.readers.stylegan:StyleGANReader", (b'"Progress/tick"',)),
    "recording": Entry("trainproof.readers.recording:RecordingReader", (b"trainproof recording",)),
    "jsonl": Entry("trainproof.readers.jsonl:JSONLReader", (b"{",)),
    "json-history": Entry("trainproof.readers.json_history:JSONHistoryReader", (b"{",)),
    "catboost": Entry("trainproof.readers.catboost:CatBoostReader", (b'"learn_metrics"',)),
    "tensorboard": Entry("trainproof.readers.tensorboard:TensorBoardReader"),
    "wandb": Entry("trainproof.readers.wandb:WandbReader", (b":W&B",)),
    "wandb-export": Entry("trainproof.readers.wandb_export:WandbExportReader", (b"__MIN",)),
    "wandb-summary": Entry("trainproof.readers.wandb_summary:WandbSummaryReader", (b'"_wandb"', b'"_runtime"')),
    "wandb-runs": Entry("trainproof.readers.wandb_summary:WandbRunsReader", (b"State",)),
    "mlflow": Entry("trainproof.readers.mlflow:MLflowReader"),
    "mlflow-db": Entry("trainproof.readers.mlflow_db:MLflowDatabaseReader", (b"SQLite format 3\0",)),
    "coqui": Entry("trainproof.readers.coqui:CoquiReader", (b"| > ",)),
    "long-table": Entry("trainproof.readers.long_table:LongTableReader", (b"alue",)),
    "lightning": Entry("trainproof.readers.lightning:LightningReader", (b"step",)),
    "keras": Entry("trainproof.readers.keras:KerasReader", (b"epoch,",)),
    "ultralytics": Entry("trainproof.readers.ultralytics:UltralyticsReader", (b"train/",)),
    "sb3": Entry("trainproof.readers.sb3:ProgressReader", (b"time/", b"rollout/", b"TimestepsSoFar", b"EpRewMean")),
    "monitor": Entry("trainproof.readers.sb3:MonitorReader", (b"r,l,t",)),
    "algoperf": Entry("trainproof.readers.algoperf:AlgoPerfReader", (b"accumulated_submission_time",)),
    "tensorboard-csv": Entry(
        "trainproof.readers.tensorboard_csv:TensorBoardCSVReader", (b"Wall time", b"wall_time", b"value")
    ),
    "flair-tsv": Entry("trainproof.readers.flair_tsv:FlairReader", (b"TRAIN_LOSS",)),
    "speedrun": _console("speedrun:SpeedrunReader", b"train_loss:", b"val_loss:", b" loss:"),
    "llmc": _console("llmc:LlmcReader", b"trl:", b"tel:"),
    "megatron": _console("megatron:MegatronReader", b"lm loss", b"lm-loss", b"| consumed samples:", b"| loss scale:"),
    "fairseq": _console("fairseq:FairseqReader", b"| train_inner |", b"| epoch "),
    "torchtitan": _console("torchtitan:TorchTitanReader", b"loss:"),
    "olmo": _console("olmo:OlmoReader", b"[step="),
    "boxes": _console("boxes:BoxReader", b"total_timesteps", b"TimestepsSoFar", b"iterations ", b"EpRet"),
    "ruled-table": _console("ruled:RuledReader", b"---", b"____ "),
    "yolo": _console("yolo:YoloReader", b"%|"),
    "progress-bar": _console("bars:BarReader", b"%|", b"it [", b"Training epoch "),
    "keras-console": _console("keras:KerasReader", b"Epoch "),
    "hf-console": _console("huggingface:HFConsoleReader", b"'loss': ", b"'eval_loss': "),
    "nanogpt": _console("nanogpt:NanoGPTReader", b"iter ", b"step "),
    "torchtune": _console("torchtune:TorchtuneReader", b"Step ", b"|Loss: "),
    "mmengine-log": _console("mmlog:MMLogReader", b"Epoch", b"Iter"),
    "meters": _console("meters:MetersReader", b"Train: ", b"Epoch: ["),
    "cyclegan": _console("cyclegan:CycleGANReader", b"(epoch: "),
    "flair": _console("flair:FlairReader", b"- iter "),
    "joeynmt": _console("joeynmt:JoeyNMTReader", b"Batch Loss:", b"Validation result", b"Steps: "),
    "sovits": _console("sovits:SovitsReader", b"\tINFO\t"),
    "wordlm": _console("wordlm:WordLMReader", b" batches |"),
    "absl": _console("absl:AbslReader", b"logging_writer.py:"),
    "stylegan-log": _console("styleganlog:StyleGANLogReader", b"sec/tick"),
    "darknet": _console("darknet:DarknetReader", b" rate, "),
    "marian": _console("marian:MarianReader", b" : Cost ", b"[valid] Ep. "),
    "espnet": _console("espnet:EspnetReader", b"epoch results: "),
    "deepspeed": _console("deepspeed:DeepSpeedReader", b"iter time", b", Step: "),
    "boosting": _console("boosting:BoostingReader", b"]\t", b"] Iteration:", b"\tlearn: ", b" tree", b"Remaining Time"),
    "kaldi": _console("kaldi:KaldiReader", b"(nnet3-", b"train_objective", b"AVG.LOSS"),
    "sockeye": _console("sockeye:SockeyeReader", b"perplexity-train=", b"INFO:sockeye"),
    "tesseract": _console("tesseract:TesseractReader", b"At iteration "),
    "matlab": _console("matlab:MatlabReader", b"|=========="),
    "parlai": _console("parlai:ParlAIReader", b"total_exs:"),
    "estimator": _console("frameworks:EstimatorReader", b", step = "),
    "litgpt": _console("frameworks:LitGPTReader", b"| loss train: "),
    "maxtext": _console("frameworks:MaxTextReader", b"completed step: "),
    "opennmt": _console("frameworks:OpenNMTReader", b"; acc:", b"; steps/s = "),
    "detectron2-log": _console("frameworks:Detectron2ConsoleReader", b"d2.utils.events"),
    "mlx": _console("frameworks:MLXReader", b": Train loss "),
    "yolox": _console("frameworks:YOLOXReader", b"yolox.core.trainer"),
    "csv": Entry("trainproof.readers.delimited:DelimitedReader"),
    "generic-text": _console("generic:GenericReader", b""),
}
#: a reader this sure is not in doubt; those after it need not even be imported
SURE = 0.8
#: what it claims may be claimed more surely further down
LAST_RESORT = "generic-text"
#: how far into a text records are looked for, where its head has none: behind source code and dumps of configurations
FURTHER_BYTES = 32 * 1024 * 1024
#: how far the last resort looks for them: it looks at every text
GUESSED_BYTES = 4 * 1024 * 1024


class Reader(Protocol):
    """Reads one log format. It knows nothing of rules."""

    name: str
    description: str

    def sniff(self, head: bytes) -> float:
        """How surely `head` (the first 64 KiB, UTF-8 where it is text) is this format: 0 to 1; the highest claims the file."""

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        """Give every record to `out`; report every line that is not understood with `out.drop`. Raises FormatError only when
        the file as a whole cannot be read as this format."""


class RunReader(Reader, Protocol):
    """A reader of a format that spreads one run over the files of a folder."""

    def read_run(self, logs: Sequence[LogInput], out: FrameBuilder) -> None:
        """As `read`, for all the files of one run. Holds few of them open at a time."""


def spreads(reader: Reader) -> TypeGuard[RunReader]:
    """Whether the reader's format spreads a run over several files."""
    return hasattr(reader, "read_run")


def reader_for(name: str) -> Reader:
    """The reader called `name`. Raises UsageError for an unknown one."""
    if name in READERS:
        return _own(name)
    others = plugin_readers()
    if name not in others:
        raise UsageError(f"unknown format {name!r}; known: {', '.join([*READERS, *others])}")
    return others[name]


def is_console(reader: Reader) -> bool:
    """Whether the reader is one of ours that reads what a process printed."""
    return reader.name in READERS and READERS[reader.name].anywhere


def _own(name: str) -> Reader:
    module, _, attribute = READERS[name].where.partition(":")
    reader: Reader = getattr(import_module(module), attribute)()
    return reader


@cache
def plugin_readers() -> dict[str, Reader]:
    """The readers of other packages by name; one that takes the name of another is left out."""
    found: dict[str, Reader] = {}
    for plugin in plugins.plugins(plugins.READERS):
        try:
            reader = _PluginReader(plugin, plugin.load()())
            if reader.name in READERS or reader.name in found:
                raise ValueError(f"there is a reader called {reader.name!r} already")
            found[reader.name] = reader
        except (Exception, SystemExit) as error:
            plugins.broken(plugin, error)
    return found


class _PluginReader:
    """A reader of another package: what it raises is its own fault and told as such."""

    def __init__(self, plugin: plugins.Plugin, reader: Reader) -> None:
        self._plugin, self._reader = plugin, reader
        self.name, self.description = str(reader.name), str(reader.description)
        if not callable(reader.sniff) or not callable(reader.read):
            raise TypeError("its sniff and read are no methods")

    def sniff(self, head: bytes) -> float:
        try:
            return float(self._reader.sniff(head))
        except Exception as error:
            plugins.broken(self._plugin, error)
            return 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        try:
            self._reader.read(log, out)
        except (FormatError, OSError):
            raise
        except Exception as error:
            raise FormatError(f"{log.path}: {self._plugin} failed: {plugins.described(error)}") from None


def sniff(head: bytes) -> Reader | None:
    """The reader that claims `head` most surely, or None when none does. Plug-ins are asked where no reader is sure."""
    best, best_score = None, 0.0
    for reader in _candidates(head):
        score = reader.sniff(head)
        if score > best_score:
            best, best_score = reader, score
        if score >= SURE:
            break
    return best


def _candidates(head: bytes) -> Iterator[Reader]:
    """The readers whose marks are in `head`, then those of other packages."""
    for name, entry in READERS.items():
        if any(mark in head for mark in entry.marks):
            yield _own(name)
    yield from plugin_readers().values()


def claimant(log: LogInput, most: int = FURTHER_BYTES) -> Reader | None:
    """The reader that claims `log`, whose records may begin anywhere in its first `most` bytes; None when none does."""
    reader = sniff(log.head)
    known = reader is not None and reader.name != LAST_RESORT
    if known or len(log.head) < HEAD_BYTES or b"\0" in log.head:
        return reader
    anywhere = {name: entry for name, entry in READERS.items() if entry.anywhere}
    readers: dict[str, Reader] = {}
    guess = reader
    seen = 0
    for chunk in log.chunks():
        if guess is not None or seen >= GUESSED_BYTES:
            anywhere.pop(LAST_RESORT, None)
        for name, entry in anywhere.items():
            if any(mark in chunk for mark in entry.marks):
                readers[name] = readers.get(name) or _own(name)
                score = readers[name].sniff(chunk)
                if score >= SURE:
                    return readers[name]
                guess = guess or (readers[name] if score else None)
        seen += len(chunk)
        if seen >= most:
            break
    return guess


def recognise(log: LogInput) -> Reader:
    """The reader that claims `log`. Raises FormatError when none does."""
    reader = claimant(log)
    if reader is None:
        raise FormatError(f"{log.path}: not a training log in a known format; name it with --format if it is one")
    return reader
