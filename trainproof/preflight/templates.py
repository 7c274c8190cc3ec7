"""Chat templates, rendered in a sandbox in a process of its own: what a template does there costs a finding, never this process.

The sandbox is jinja2's immutable one; no powers, no repetition of texts, no long ranges. The process may use a gigabyte and 20 seconds,
reads one JSON document and writes one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any, NamedTuple

#: seconds that a chat template may take, and bytes of its process
PATIENCE = 20.0
MOST_BYTES = 1024**3
#: characters of a rendering that are looked at
MOST_RENDERED = 100_000
#: a conversation whose every part can be found again
PROBE = (
    {"role": "system", "content": "Alpha rule."},
    {"role": "user", "content": "Bravo question?"},
    {"role": "assistant", "content": "Charlie answer."},
    {"role": "user", "content": "Delta question?"},
    {"role": "assistant", "content": "Echo answer."},
)


#: what templates write around turns
MARKERS = re.compile(r"<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]")


class Rendering(NamedTuple):
    """The probe by the chat template: whole, up to the second question with and without a generation prompt; or the error."""

    whole: str = ""
    open: str = ""
    closed: str = ""
    error: str | None = None
    refuses: str = ""  # why it refuses a system turn


def rendering_of(template: str, named: dict[str, str], patience: float = PATIENCE) -> Rendering:
    """The probe by a template. named: the special tokens that templates use, such as bos_token."""
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(  # noqa: S603  our own module
            command, input=json.dumps([template, named]).encode(), capture_output=True, timeout=patience, check=False
        )
        return Rendering(*json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return Rendering(error=f"not rendered within {patience:g} s")
    except (ValueError, TypeError):
        return Rendering(error="the process that rendered it died")


def markers_of(text: str) -> list[str]:
    """The markers of turns in a rendered text, each once."""
    return sorted(set(MARKERS.findall(text)))


def _probed(template: str, named: dict[str, str]) -> Rendering:
    messages = [dict(message) for message in PROBE]
    refuses = ""
    try:
        try:
            whole = _rendered(template, named, messages, False)
        except Exception as error:  # a template may refuse the system role, and says so by raising
            messages, refuses = messages[1:], str(error)[:100] or type(error).__name__
            whole = _rendered(template, named, messages, False)
        opened, closed = (_rendered(template, named, messages[:-1], prompt) for prompt in (True, False))
        return Rendering(whole[:MOST_RENDERED], opened[:MOST_RENDERED], closed[:MOST_RENDERED], refuses=refuses)
    except Exception as error:  # whatever a template raises
        said = str(error).splitlines()
        return Rendering(error=f"{type(error).__name__}: {said[0][:150] if said else ''}")


def _rendered(template: str, named: dict[str, str], messages: list[dict[str, str]], prompt: bool) -> str:
    """A conversation, with the functions and tags that transformers gives to templates. Raises what the template raises."""
    return str(_environment().from_string(template).render(messages=messages, add_generation_prompt=prompt, **named))


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag around what the assistant says, which masks of labels are made from."""

        tags = {"generation"}  # noqa: RUF012  as jinja2 declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Bounded(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise TemplateError("repetition and powers are not rendered")
            return super().call_binop(context, operator, left, right)

    def refuse(message: str) -> None:
        raise TemplateError(str(message))

    environment = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.globals.update(raise_exception=refuse, range=_range, strftime_now=_date)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    return environment


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > 10_000:
        raise ValueError("a range of more than 10,000")
    return numbers


def _date(form: str) -> str:
    """A fixed date: the same template gives the same text."""
    from datetime import datetime

    return datetime(2026, 1, 2, 3, 4, 5).strftime(form)


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    except (ImportError, ValueError, OSError):  # not on Windows, or a stricter limit is set already
        pass
    template, named = json.load(sys.stdin)
    sys.stdout.write(json.dumps(_probed(template, named)))


if __name__ == "__main__":
    _main()
