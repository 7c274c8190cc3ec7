"""Lines in which the log itself says that a run came to grief (rule TP104).

Only anchored lines count, since pasted source and documentation hold the same words. A process that logs more records
afterwards has recovered: what it caught, or restarted from, was not the end of the run. An interrupt by the user or the
scheduler is an end, no failure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trainproof.frame import Event
from trainproof.readers.builder import FrameBuilder

#: a line with none of these is not looked at: searching plain texts is a hundred times as fast as regular expressions
NEEDLES = (
    *(b"Traceback", b"rror", b"xception", b"ut of memory", b"illed", b"core dumped"),
    *(b"oss is", b"nvalid loss", b"Xid", b"Watchdog"),
)
_MOST_EVENTS = 1000
_LONGEST, _LONGEST_TRACEBACK = 2000, 1000

#: what launchers and loggers put before a line
_PREFIX = (
    rb"\A(?:\[[\w,.: /=-]{1,60}\](?:<\w+>)?:? ?|\d{1,5}: ?|[\w.-]{1,40}: (?=Traceback|\w+(?:\.\w+)*(?:Error|Exception|Interrupt)\b)"
    rb"|\(\w+ pid=\d+[^)\n]{0,60}\) )*+"
)
_TRACEBACK = re.compile(_PREFIX + rb"Traceback \(most recent call last\):")
_RAISED = re.compile(
    _PREFIX
    + rb"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Quit|Failure|Timeout|Stop|Iteration))(?::|$)"
)
_INSIDE = re.compile(_PREFIX + rb"(?:[ \t]|$)")
#: exceptions by which the user, or whoever runs the machine, ends a run
_ENDED_BY_USER = re.compile(rb"(?:\w+\.)*(?:KeyboardInterrupt|SystemExit|GeneratorExit|BdbQuit|SignalException)\Z")
#: lines after which a traceback is that of a bystander
_HARMLESS = re.compile(rb"Exception ignored in|Exception in thread|--- Logging error ---|Exception in callback")
_SAID = rb"(?:\A|[\]:>|)-] ?|\d )"


class _Kind(NamedTuple):
    """A kind of event: its name, its line, and whether it counts even when more records follow."""

    name: str
    pattern: re.Pattern[bytes]
    final: bool = False


_KINDS = (
    _Kind("nonfinite-stop", re.compile(_SAID + rb"[Ll]oss is (?:nan|NaN|-?inf(?:inity)?),? [Ss]topping\b"), True),
    _Kind("nonfinite-stop", re.compile(_PREFIX + rb"FloatingPointError: Loss became infinite or NaN"), True),
    _Kind("nonfinite-stop", re.compile(_PREFIX + rb"ValueError: The loss returned in `\w+` is (?:nan|inf)"), True),
    _Kind("nonfinite-stop", re.compile(_SAID + rb"Batch \d+: Invalid loss, terminating training"), True),
    _Kind("nonfinite-stop", re.compile(_PREFIX + rb"AssertionError: Rank \d+: found NaN in local forward loss"), True),
    _Kind(
        "minimum-loss-scale",
        re.compile(_PREFIX + rb"FloatingPointError: Minimum loss scale reached \([\d.e-]+\)"),
        True,
    ),
    _Kind("minimum-loss-scale", re.compile(_PREFIX + rb"Exception: Current loss scale already at minimum"), True),
    _Kind(
        "out-of-memory",
        re.compile(
            _PREFIX + rb"(?:[\w.]*OutOfMemoryError|RuntimeError|MemoryError)\b:? ?[^\n]{0,80}(?i:out of memory)"
            rb"|" + _PREFIX + rb"(?:[\w.]*OutOfMemoryError|MemoryError)(?::|$)"
            rb"|\A[^\n]{0,200}?\bOOM: Ran out of memory with exception: (?:CUDA|HIP) out of memory"
            rb"|\A[^\n]{0,200}?\bRESOURCE_EXHAUSTED: Out of memory"
            rb"|\Aslurmstepd: error: Detected \d+ oom.kill event"
        ),
    ),
    _Kind(
        "collective-failed",
        re.compile(
            rb"\A[^\n]{0,200}?\bWatchdog caught collective operation timeout"
            rb"|"
            + _PREFIX
            + rb"(?:[\w.]*(?:RuntimeError|DistBackendError)): [^\n]{0,200}(?:NCCL (?:error|communicator was aborted)|nccl\w*Error)"
        ),
    ),
    _Kind("crashed", re.compile(rb"\A(?:[^\n]{0,200}?\W)?(?:Segmentation fault|Bus error|Aborted) +\(core dumped\)")),
    _Kind("killed", re.compile(rb"\AKilled$|\A[^\n]{0,200}?: line \d+: +\d+ Killed\b|\A(?:zsh|bash|sh): killed\b")),
)
_XID = re.compile(rb"\A[^\n]{0,200}?\bNVRM: Xid \([^)\n]{1,60}\): (?P<number>48|63|64|74|79|94|95)\b")


class Watch:
    """Looks at the lines of a log that are no records, in their order, and tells the builder of fatal events."""

    def __init__(self, out: FrameBuilder) -> None:
        self._out = out
        self._pending: list[Event] = []
        self._ended_at = 0  # the line on which the user, or the scheduler, ended the run
        self._inside = 0  # lines since "Traceback", until the exception that it leads to
        self._harmless = False  # it is that of a bystander

    def record(self, line: int) -> None:
        """A record of training on this line: what was caught before it is over."""
        self._pending = [event for event in self._pending if event.line > line]
        if self._ended_at < line:
            self._ended_at = 0

    def interested(self, text: bytes) -> bool:
        """Whether anything in `text`, which may have many lines, has to be looked at."""
        return self._inside > 0 or any(needle in text for needle in NEEDLES)

    def line(self, number: int, text: bytes) -> None:
        """One line that is no record."""
        text = text[:_LONGEST].rstrip(b"\x0b\r")
        if _TRACEBACK.match(text):
            self._inside = 1
        elif self._inside:
            self._inside = self._inside + 1 if self._inside < _LONGEST_TRACEBACK else 0
            if not _INSIDE.match(text):
                self._raised(number, text)
        elif any(needle in text for needle in NEEDLES):
            self._harmless = _HARMLESS.search(text) is not None
            self._told(number, text)

    def _raised(self, number: int, text: bytes) -> None:
        """A line after a traceback that is none of its frames; another process may have printed it in between."""
        match = _RAISED.match(text)
        if match is None:
            return
        self._inside = 0
        if _ENDED_BY_USER.match(match["type"]):
            self._ended_at = number
        elif not self._harmless and not self._told(number, text):
            self._add("exception", text, number)
        self._harmless = False

    def _told(self, number: int, text: bytes) -> bool:
        """Whether the line is one of the known kinds, which is noted then."""
        for kind in _KINDS:
            if kind.pattern.search(text):
                self._add(kind.name, text, number, kind.final)
                return True
        if match := _XID.match(text):
            self._add(f"xid-{match['number'].decode()}", text, number, final=True)
        return match is not None

    def _add(self, kind: str, text: bytes, line: int, final: bool = False) -> None:
        event = Event(kind, text.decode("utf-8", "replace").strip(), line)
        if final:
            self._out.event(*event)
        elif len(self._pending) < _MOST_EVENTS:
            self._pending.append(event)

    def finish(self, *, done: bool = False) -> None:
        """The log is over: what was not recovered from is told, unless the user ended the run, or it was done."""
        if not (done or self._ended_at or self._out.ended):
            for event in self._pending:
                self._out.event(*event)
