"""Sound records in the layouts that the ecosystem writes have no finding over INFO; a fault among them is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.helpers import EVERYTHING, codes, jsonl, judged, rows_told
from tools.text_faults import clean_pairs
from trainproof.errors import InputError
from trainproof.verdict import RunReport, Severity

PAIRS = list(clean_pairs(40))
Record = dict[str, Any]


def asked(pair: Record, role: str = "role", user: str = "user", content: str = "content") -> list[Record]:
    return [{role: user, content: pair["prompt"]}]


def said(pair: Record, which: str = "chosen") -> list[Record]:
    return [{"role": "assistant", "content": pair[which]}]


def calls_in_text(pair: Record) -> list[Record]:
    turns = [("human", pair["prompt"]), ("gpt", '<tool_call>\n{"name": "get"}\n</tool_call>')]
    turns += [("tool", "<tool_response>1</tool_response>"), ("gpt", pair["chosen"])]
    return [{"from": role, "value": text} for role, text in turns]


LAYOUTS: dict[str, tuple[str, Callable[[int, Record], Record]]] = {
    "Hermes, calls in text": ("chat", lambda _, p: {"conversations": calls_in_text(p), "category": "Weather"}),
    "Dolly, one category": ("chat", lambda _, p: {"instruction": p["prompt"], "context": "", "response": p["chosen"], "category": "qa"}),
    "KTO": ("chat", lambda i, p: {"prompt": f"{p['prompt']} {i % 20}", "completion": p["chosen"], "label": i < 20}),
    "pictures, one prompt": (
        "chat",
        lambda i, p: {"image": f"coco/{i}.jpg", "conversations": [{"from": "human", "value": "<image>\nDescribe the picture."},
                                                                  {"from": "gpt", "value": p["chosen"]}]},
    ),
    "pictures in parts": (
        "chat",
        lambda i, _: {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"{i}.png"}},
                                                                {"type": "text", "text": "Is there a dog?"}]},
                                   {"role": "assistant", "content": "yes"}]},
    ),
    "answers of one sign": ("chat", lambda i, p: {"messages": [*asked(p), {"role": "assistant", "content": "+-"[i % 2]}]}),
    "pairs of ShareGPT": (
        "preference",
        lambda _, p: {"conversations": asked(p, "from", "human", "value"), "chosen": {"from": "gpt", "value": p["chosen"]},
                      "rejected": {"from": "gpt", "value": p["rejected"]}},
    ),
    "pairs of OpenAI": (
        "preference",
        lambda _, p: {"input": {"messages": asked(p)}, "preferred_output": said(p), "non_preferred_output": said(p, "rejected")},
    ),
    "pairs as whole texts": (
        "preference",
        lambda _, p: {side: f"\n\nHuman: {p['prompt']}\n\nAssistant: {p[side]}" for side in ("chosen", "rejected")},
    ),
    "reward pairs": ("preference", lambda _, p: {"question": p["prompt"], "response_j": p["chosen"], "response_k": p["rejected"]}),
    "segments": (
        "text",
        lambda _, p: {"segments": [{"label": False, "text": f"<s>{p['prompt']}"}, {"label": True, "text": f"{p['chosen']}</s>"}]},
    ),
    "prompts alone": ("text", lambda i, p: {"prompt": asked(p), "ground_truth": str(i)}),
    "fields of other names": ("text", lambda i, p: {"id": f"x{i}", "premise": p["prompt"], "hypothesis": p["chosen"], "gold": 1}),
    "translations": ("text", lambda _, p: {"translation": {"en": p["prompt"], "de": p["chosen"]}}),
}  # fmt: skip


def loud(report: RunReport) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity != Severity.INFO}


@pytest.mark.parametrize("name", LAYOUTS)
def test_sound_records_have_no_finding(name: str, tmp_path: Path) -> None:
    kind, make = LAYOUTS[name]
    records = [make(i, pair) for i, pair in enumerate(PAIRS)]
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records), options=EVERYTHING._replace(near=False))
    assert (found.kind, found.rows, loud(report)) == (kind, len(PAIRS), set())
    broken = json.dumps(records[6])
    for text in (PAIRS[6]["prompt"], PAIRS[6]["chosen"]):
        broken = broken.replace(json.dumps(text)[1:-1], json.dumps(f"{text} \u00c3\u00a9t\u00c3\u00a9")[1:-1])
    records[6] = json.loads(broken)
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records), options=EVERYTHING._replace(near=False))
    assert rows_told(report, found, "TPD104") == ({7} if "\\u00c3" in broken else set())


def test_a_result_without_a_call_is_still_told(tmp_path: Path) -> None:
    records = [{"conversations": calls_in_text(pair)} for pair in PAIRS]
    records[4]["conversations"][1]["value"] = "I shall look."
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records))
    assert rows_told(report, found, "TPD134") == {5}


def test_empty_sides_of_other_names_are_told(tmp_path: Path) -> None:
    records = [LAYOUTS["pairs of ShareGPT"][1](i, pair) for i, pair in enumerate(PAIRS)]
    records[2]["rejected"]["value"] = " "
    records[3]["rejected"] = records[3]["chosen"]
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records))
    assert rows_told(report, found, "TPD152") == {3}
    assert rows_told(report, found, "TPD151") == {4}


def test_one_picture_answered_twice_is_told(tmp_path: Path) -> None:
    records = [LAYOUTS["pictures, one prompt"][1](i, pair) for i, pair in enumerate(PAIRS)]
    records[9]["image"] = records[8]["image"]
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records))
    assert rows_told(report, found, "TPD131") == {10}


def test_files_of_several_datasets_warn_and_mixed_rows_fail(tmp_path: Path) -> None:
    chat = [{"messages": [*asked(pair), *said(pair)]} for pair in PAIRS]
    alpaca = [{"instruction": pair["prompt"], "output": pair["rejected"]} for pair in PAIRS[:20]]
    jsonl(tmp_path / "a.jsonl", *chat)
    jsonl(tmp_path / "b.jsonl", *alpaca)
    report, _ = judged(tmp_path)
    assert {f.rule: f.severity for f in report.findings}["TPD005"] == Severity.WARN
    jsonl(tmp_path / "b.jsonl", *alpaca, {"messages": [*asked(PAIRS[30]), *said(PAIRS[31])]})
    report, _ = judged(tmp_path)
    assert {f.rule: f.severity for f in report.findings}["TPD005"] == Severity.FAIL


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("book.txt", "[The notes of a reader]"),
        ("book.txt", "{Chapter} one"),
        ("agnews.csv", None),
        ("european.csv", "text;label"),
    ],
)
def test_texts_and_tables_of_other_shapes(name: str, head: str | None, tmp_path: Path) -> None:
    lines = [f"3;{pair['prompt']}" if head is None else pair["prompt"] for pair in PAIRS]
    body = [f'"{i % 4}","{line[2:]}"' if head is None else f"{line};{i % 2}" if ";" in head else line for i, line in enumerate(lines)]  # fmt: skip
    (tmp_path / name).write_text("\n".join([*([head] if head else []), *body]) + "\n")
    report, found = judged(tmp_path / name, options=EVERYTHING._replace(near=False))
    assert (found.kind, loud(report)) == ("text", set())
    assert found.rows == len(PAIRS) + name.endswith(".txt")


def test_a_kind_that_is_asked_for_needs_a_layout(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "data.jsonl", *({"dialogue": pair["prompt"]} for pair in PAIRS))
    assert "TPD005" in loud(judged(path, kind="chat")[0])
    assert codes(judged(path)[0]) == {"TPD005"}


def test_token_ids_without_texts_are_one_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "data.jsonl", {"input_ids": [1, 2], "labels": [1, 2]})
    with pytest.raises(InputError, match="token ids without texts"):
        judged(path)


def test_trl_reads_fields_by_their_names(tmp_path: Path) -> None:
    for fields, told in ((("prompt", "completion"), False), (("question", "answer"), True)):
        records = [{fields[0]: pair["prompt"], fields[1]: pair["chosen"]} for pair in PAIRS]
        report, _ = judged(jsonl(tmp_path / "data.jsonl", *records), options=EVERYTHING._replace(trainer="trl-sft"))
        assert ("TPD303" in codes(report)) is told
