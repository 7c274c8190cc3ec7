"""Where results go: standard output, standard error, files. Files are written whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainproof.errors import InputError
from trainproof.report.escape import printable


def tell(message: str) -> None:
    """One line on standard error."""
    with suppress(OSError, AttributeError):  # closed, or there is none: nobody is listening
        sys.stderr.write(f"trainproof: {printable(message)}\n")
        sys.stderr.flush()


def print_text(text: str) -> None:
    """Text for people on standard output; what its encoding cannot spell is replaced. Raises InputError."""
    _print(text, (sys.stdout and sys.stdout.encoding) or "utf-8")


def print_data(text: str) -> None:
    """Text for programs on standard output, as UTF-8 in any locale. Raises InputError."""
    _print(text, "utf-8")


def _print(text: str, encoding: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python flushes standard output once more when it exits, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"standard output: {error.strerror}") from None


def colored(choice: str) -> bool:
    """Whether standard output gets colours: `choice` is auto, always or never; NO_COLOR and FORCE_COLOR as https://no-color.org."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())


def terminal_width() -> int:
    """Columns of the terminal; 100 where standard output is none: piped text does not depend on where it runs."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 100
    except (OSError, ValueError, AttributeError):
        return 100


def write_whole(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write the file, text as UTF-8, whole or not at all: a temporary file beside it, fsync, rename. Raises InputError.

    content: also lines, which are written as they come.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def report_folder() -> Path:
    """`.trainproof` in the working directory, kept out of git. Raises InputError when it cannot be made."""
    folder = Path(".trainproof")
    try:
        folder.mkdir(exist_ok=True)
        if not (folder / ".gitignore").exists():
            write_whole(folder / ".gitignore", "*\n")
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    return folder


def report_stem(paths: tuple[str, ...]) -> str:
    """The stem of the default report's name: that of the first input, and how many more there are."""
    first = "stdin" if paths[0] == "-" else Path(paths[0]).name or Path(paths[0]).resolve().name
    for ending in (".gz", ".xz", ".zst"):
        first = first.removesuffix(ending)
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in Path(first).stem).strip("-.")[:80] or "logs"
    return stem if len(paths) == 1 else f"{stem}-and-{len(paths) - 1}-more"
