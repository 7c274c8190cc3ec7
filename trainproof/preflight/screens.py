"""What can be seen in a text by itself. Cheap screens first: most texts have nothing, and pay for that only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from trainproof.preflight.characters import is_odd


def _sieve() -> bytes:
    """Byte -> what it may be a part of: a number (0), markup or an address (<), a control character (!), what is not ASCII (~); itself, or a full
    stop."""
    table = bytearray(b"." * 128 + b"~" * 128)
    for byte in b"-+(\\_AIK":
        table[byte] = byte
    for byte in b"0123456789":
        table[byte] = ord("0")
    for byte in b"<[&@":
        table[byte] = ord("<")
    for byte in (*range(9), 11, 12, *range(14, 32), 127):
        table[byte] = ord("!")
    return bytes(table)


#: one pass of it over a text, which deletes what most texts are made of, and a few finds in what is left tell whether any pattern is worth a search
_SIEVE, _DELETED = _sieve(), b" \t\n\r\"',abcdefghijklmnopqrstuvwxyz"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
#: markers of chat templates, which in a text are read as the marker itself; <s> is also HTML, so only around a text. What all begin
#: with stands first, so that the search skips what does not
TEMPLATE = re.compile(
    r"[<\[](?:(?<=<)(?:\|(?:im_start|im_end|im_sep|endoftext|eot_id|start_header_id|end_header_id|begin_of_text|end_of_text|system|user"
    r"|assistant|end|eom_id|python_tag|endofprompt|channel|message|return|start)\|>|</?SYS>>|(?:start|end)_of_turn>"
    r"|s>(?<=\A<s>)|/s>\s*(?:\Z|<s>)|bos>|eos>|pad>|unk>|｜[^｜]{1,30}｜>)|(?<=\[)(?:/?INST|CLS|SEP|PAD|MASK|UNK)\])"
)
_HTML = re.compile(
    r"</?(?:div|span|p|br|li|ul|ol|td|tr|table|h[1-6]|font|strong|em|iframe|script|style)\b[^<>]{0,200}>|&(?:nbsp|amp|lt|gt|quot|#\d{2,5}|#x[0-9a-fA-F]{2,5});",
    re.IGNORECASE,
)
#: an address from its @ on, and what stands before that
_EMAIL = re.compile(r"@(?<=[\w.+-]@)[\w-]{1,63}(?:\.[\w-]{1,63})*\.[a-zA-Z]{2,24}\b")
_MAILBOX = re.compile(r"[\w.+-]{1,64}\Z")
#: addresses that documentation uses and that are nobody's
_NOBODY = re.compile(r"@(?:[\w.-]*\.)?(?:example|test|localhost|invalid|domain|email|company)\b", re.IGNORECASE)
_NUMBERS = re.compile(
    r"(?<![\w.-])(?:\d{3}-\d{2}-\d{4}|\d{4}([ -]?)\d{4}\1\d{4}\1\d{4}|\+\d{1,3}[ -]?(?:\d[ -]?){8,12}\d|\(\d{3}\) ?\d{3}-\d{4})(?![\w-])"
)
_SECRETS = re.compile(
    r"\b(?:sk-(?:proj-|ant-)?[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AIza[0-9A-Za-z_-]{35})\b|-----BEGIN (?:RSA |EC |OPENSSH |PGP )?PRIVATE KEY"
)
#: UTF-8 that was read as Latin-1 or Windows-1252: the lead byte as a letter, then a continuation byte as a sign
_MOJIBAKE = re.compile(
    "\u00c3[\u0080-\u00bf\u0192\u201a\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178]"
    "|\u00c2[\u0080-\u009f\u00a0-\u00bf](?=[\\s\\w]|$)|\u00e2\u20ac[\u0153\u009d\u2122\u02dc\u00a6\u0093\u0094\u201c\u201d\u2018\u2019\u00a2]?|\u00e2\u0080[\u0080-\u00bf]|\u00d0[\u0080-\u00bf]\u00d0[\u0080-\u00bf]|\u00f0\u0178|\u00ef\u00bf\u00bd"
)
_HIDDEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|[\U000e0020-\U000e007f]")
#: emoji sequences use variation selectors and joiners, flags of regions use tags: those hide nothing
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LATIN = "A-Za-z\u00c0-\u024f"
_MIXED = re.compile(
    f"[{_LATIN}](?:[\u0400-\u04ff]|[\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03bf\u03c1-\u03c9])[{_LATIN}]|[\u0400-\u04ff][{_LATIN}][\u0400-\u04ff]"
    f"|\\b[\u0400-\u04ff][{_LATIN}]{{2,}}|\\b[{_LATIN}][\u0400-\u04ff]{{2,}}"
)
_DECOMPOSED = re.compile("[A-Za-z][\u0300-\u0304\u0306-\u030c\u0327\u0328]")
_ESCAPES = re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}\\x[0-9a-fA-F]{2}")

_NUMBER_SHAPES = (b"-00-", b"+0", b"(000.", b"0000-0000-", b"0" * 16)


def screen(text: str, encoded: bytes) -> Iterator[tuple[str, str]]:
    """(check, what is there) for everything that is odd in a text, each check once. encoded: the text as UTF-8."""
    left = encoded.translate(_SIEVE, _DELETED)
    if b"<" in left:
        yield from _marked(text)
    if b"!" in left and (seen := _CONTROL.search(text)):
        yield "TPD102", around(text, seen)
    if b"~" in left and is_odd(text, encoded):
        yield from _beyond_ascii(text)
    if b"\\" in left and (seen := _ESCAPES.search(text)):
        yield "TPD115", around(text, seen)
    if _may_hold_secret(text, left) and (seen := _SECRETS.search(text)):
        yield "TPD113", f"{seen[0][:6]}..., {len(seen[0])} characters"
    if any(shape in left for shape in _NUMBER_SHAPES):
        number = next(filter(_personal, _NUMBERS.finditer(text)), None)
        if number:
            yield "TPD112", f"a number such as {re.sub(r'[0-9]', '0', number[0])}"


def _may_hold_secret(text: str, left: bytes) -> bool:
    return (
        (b"-" in left and ("sk-" in text or "xox" in text or "PRIVATE KEY" in text))
        or (b"_" in left and ("hf_" in text or ("gh" in text and any(f"gh{kind}_" in text for kind in "pousr"))))
        or b"AKIA" in left
        or (b"AI" in left and "AIza" in text)
    )


def _personal(seen: re.Match[str]) -> bool:
    """Card numbers have a check digit (Luhn); other numbers of 16 digits are no cards."""
    digits = [int(c) for c in seen[0] if c.isdigit()]
    if len(digits) != 16 or seen[0].startswith("+"):
        return True
    doubled = [d if i % 2 else d * 2 - 9 * (d > 4) for i, d in enumerate(digits)]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 2


def _marked(text: str) -> Iterator[tuple[str, str]]:
    inner = text.strip()
    if ("<" in text or "[" in text) and (seen := TEMPLATE.search(inner)):
        yield "TPD129", around(inner, seen)
    if ("<" in text or "&" in text) and (seen := _HTML.search(text)):
        yield "TPD107", around(text, seen)
    if "@" in text and (seen := _EMAIL.search(text)) and not _NOBODY.match(seen[0]):
        box = _MAILBOX.search(text[max(0, seen.start() - 64) : seen.start()])
        yield "TPD112", f"an address of {len(box[0] if box else '') + len(seen[0])} characters"


def _beyond_ascii(text: str) -> Iterator[tuple[str, str]]:
    if "\ufffd" in text:
        at = text.index("\ufffd")
        yield "TPD103", text[max(0, at - 20) : at + 20]
    for code, pattern in (("TPD104", _MOJIBAKE), ("TPD106", _MIXED), ("TPD119", _SURROGATE), ("TPD117", _DECOMPOSED)):
        if seen := pattern.search(text):
            yield code, around(text, seen)
    if (seen := _HIDDEN.search(text)) and (seen := _HIDDEN.search(_FLAG.sub("", text))):
        yield "TPD105", f"U+{ord(seen[0]):04X} {unicodedata.name(seen[0], '')}"


def around(text: str, seen: re.Match[str], width: int = 24) -> str:
    """What was seen, with some of what stands around it."""
    return text[max(0, seen.start() - width) : seen.end() + width]
