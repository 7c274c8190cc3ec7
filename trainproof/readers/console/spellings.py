"""Ways of printing a record that are no `key: value`, written anew as such, line by line; the number of lines stays.

Average loss at step 2000: 4.21          step 2000 Average loss: 4.21
epoch: 3 step: 100, loss is 2.31         epoch: 3 step: 100, loss: 2.31
[3/100] Train Loss: 0.52                 step 3/100 Train Loss: 0.52
I0831 solver.cpp:228] loss = 0.4         I0831 loss = 0.4
"""

from __future__ import annotations

import re

from trainproof.readers.console.text import MOST_RECORD_BYTES

#: what the lines of losses hold, and those of other metrics
LOSS_MARKS = (b"oss", b"ost", b"xent", b"nll")
METRIC_MARKS = (b"eward", b"eturn", b"core", b"cc", b"AUC", b"auc", b"rmse", b"RMSE", b"ppl", b"error", b"F1", b"f1")
#: what lines with other spellings of them hold, and those with a counter
_OTHER_MARKS = (
    b"rror",
    b"erplex",
    b"ntropy",
    b"poch",
    b"POCH",
    b"tep",
    b"STEP",
    b"iter",
    b"Iter",
    b"ITER",
    b"ound",
    b"pdate",
    b"pisode",
)
_NUMBER_NEXT = rb"(?=[-+]?(?:\.?\d|nan\b|inf\b))"
_COUNTER = rb"(?:global[ _])?(?:step|iteration|iter|epoch|batch|update|episode)"
#: characters of East Asian keyboards, and the words for what is measured
_WIDE = {
    "：": ":",
    "，": ",",
    "｜": "|",
    "＝": "=",
    "（": "(",
    "）": ")",
    "训练": " train ",
    "验证": " val ",
    "测试": " test ",
    "损失": "loss",
    "准确率": "acc",
    "学习率": "lr",
    "步数": "step",
    "轮次": "epoch",
}
_ENCODED = {wide.encode(): plain.encode() for wide, plain in _WIDE.items()}
_WIDE_TEXT = re.compile(b"|".join(map(re.escape, _ENCODED)))
#: a line without any is no record and no headline; the last begins the number of an epoch in Chinese
_MAY_MEASURE = re.compile(
    b"|".join(map(re.escape, (*LOSS_MARKS, *METRIC_MARKS, *_OTHER_MARKS, *_ENCODED, "第".encode())))
)
_EPOCH_NUMBER = re.compile("第 ?([0-9]{1,9}) ?(?:轮|个?epoch)".encode())
_SOURCE_LINE = re.compile(rb"\b[\w./-]{1,80}\.(?:py|cc?|cpp|cu|java|lua|jl|go|rs):\d{1,6}")
_ABBREVIATED = re.compile(rb"\b((?i:val|avg|ave|acc|train|valid|std))\.(?: (?=[A-Za-z])|(?=loss\b))")
_UNIT_BEFORE_NAME = re.compile(rb"(?<=\d )(s|sec|ms)\.? (?=[A-Z])")
_VALI = re.compile(rb"\b([Vv])ali(?=[ _][Ll]oss)")
_TERM = re.compile(rb"(?<![\w/.])l_(?=[a-z]\w{0,30}: )")
_NUMBERED_LOSS = re.compile(rb"\b((?i:train|validation) loss) (\d{1,12}):? +(?=\d+\.\d|nan\b|inf\b)")
_FLAX_STEP = re.compile(rb"\bStep\.\.\. ?\((\d{1,12})\b")
_DL4J_SCORE = re.compile(rb"\bScore at iteration (\d{1,12}) is ")
_POSSESSIVE = re.compile(rb"\b(\w{1,40})'s (?=\w{1,40}[ \t]*[:=])")
_SPOKEN_VALUE = re.compile(
    rb"((?i:loss|cost|score|accuracy|acc|reward|perplexity)) (?:is|of)[ :=]+(?=[-+]?\.?\d)|(?<=\d, )(loss) is (?=nan\b|inf\b)"
)
_MEASURED_AT = re.compile(
    rb"\b((?:[A-Za-z]\w{0,30} ){0,2}?(?i:\w{0,20}(?:loss|cost|score|accuracy|reward|error))) (?:at|after|for|in|on|of) "
    rb"(?i:(?:the )?("
    + _COUNTER
    + rb"))[ \t:=#]{1,4}(\d{1,12}(?:/\d{1,12})?)[ \t]*(?:[:=,|]|is\b|->)?[ \t]*"
    + _NUMBER_NEXT
)
_PLACED = (b" at ", b" after ", b" for ", b" in ", b" on ", b" of ")
_LEADING_INDEX = re.compile(
    rb"^[ \t]*(?:\[[\d:. -]{5,30}\][ \t]*)?(?:\[[ \t]*(\d{1,9})(?:[ \t]*/[ \t]*\d{1,9})?[ \t]*\]:?|(\d{1,9})(?:/\d{1,9})?:|(\d{1,9})/\d{1,9})"
    rb"[ \t]+(?=[A-Za-z(])(?![^\n]{0,300}\b(?i:" + _COUNTER + rb")s?[ \t:=#\[]{1,4}\d)",
    re.MULTILINE,
)


#: texts of which one is in all that the pattern finds; the pattern; what is put there instead
_REWRITES: tuple[tuple[tuple[bytes, ...], re.Pattern[bytes], bytes], ...] = (
    ((b".py:", b".c", b".lua:", b".java:", b".jl:", b".go:", b".rs:"), _SOURCE_LINE, b""),
    ((b". ", b".loss"), _ABBREVIATED, rb"\1 "),
    ((b"ali",), _VALI, rb"\1al"),
    ((b"l_",), _TERM, b"loss_"),
    ((b" loss ",), _NUMBERED_LOSS, rb"step \2, \1: "),
    ((b"Step...",), _FLAX_STEP, rb"step \1"),
    ((b"Score at",), _DL4J_SCORE, rb"iteration \1, loss: "),
    ((b" s", b" ms"), _UNIT_BEFORE_NAME, rb"\1; "),
    ((b"'s ",), _POSSESSIVE, rb"\1_"),
)


def as_fields(text: bytes) -> bytes:
    """`text` with the usual spellings of fields for those that are not, in the lines that may have a metric or a counter.

    The others, all of most texts that are no logs, cost next to nothing.
    """
    lines = text.split(b"\n")
    at = [i for i, line in enumerate(lines) if _MAY_MEASURE.search(line) and len(line) <= MOST_RECORD_BYTES]
    spelled = _spelled(b"\n".join([lines[i] for i in at])).split(b"\n")
    for i, line in zip(at, spelled, strict=bool(at)):
        lines[i] = line
    return b"\n".join(lines)


def _spelled(text: bytes) -> bytes:
    if not text.isascii():
        text = _WIDE_TEXT.sub(lambda match: _ENCODED[match[0]], _EPOCH_NUMBER.sub(rb" epoch \1 ", text))
    for marks, pattern, instead in _REWRITES:
        if any(mark in text for mark in marks):
            text = pattern.sub(instead, text)
    if b" is" in text or b" of" in text:
        text = _SPOKEN_VALUE.sub(lambda match: (match[1] or match[2]) + b": ", text)
    if any(word in text for word in _PLACED):
        text = _MEASURED_AT.sub(rb"\2 \3, \1: ", text)
    return _LEADING_INDEX.sub(lambda match: b"step " + (match[1] or match[2] or match[3]) + b", ", text)
