"""What the patterns find in a text passes the sieve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.preflight.helpers import codes, judged
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.preflight import screens, turns
from trainproof.preflight.characters import SCRIPTS, scripts_of
from trainproof.preflight.sieve import suspect_lines, suspects

TOLD = (
    "123-45-6789", "4539 1488 0343 6467", "4539-1488-0343-6467", "4539148803436467", "+49 170 1234567", "(555) 123-4567",
    "(555)123-4567", "sk-" + "a" * 24, "AKIA" + "B" * 16, "xoxb-1234567890", "hf_" + "a" * 32, "ghp_" + "a" * 36, "AIza" + "b" * 35,
    "-----BEGIN PRIVATE KEY", "<div>", "[INST]", "&nbsp;", "a@b.de", "\\u00e9", "\x00", "\x7f", "p\u0430y", "\ufffd", "\ud83d",
    "\u00c3\u00a9", "\u00e2\u20ac\u2122", "\u00f0\u0178", "\u0430b\u0430", "\u200b", "e\u0301", "\U000e0041",
)  # fmt: skip


@given(
    st.lists(
        st.text(st.characters(max_codepoint=0x2FFF)) | st.sampled_from(TOLD) | st.sampled_from(["a", " ", "k", "x"])
    )
)
@settings(max_examples=300)
def test_what_the_screens_find_is_suspect(parts: list[str]) -> None:
    text = " ".join(parts)
    others = ["Nothing at all, and no more.", text, "The end: (of it) is near - or not."]
    if list(screens.screen(text, text.encode("utf-8", "surrogatepass"))):
        assert 1 in suspects(others, [text.encode("utf-8", "surrogatepass") for text in others])
        for ascii_only in (True, False):
            chats = [
                json.dumps({"messages": [{"role": "user", "content": one}]}, ensure_ascii=ascii_only) for one in others
            ]
            found = suspect_lines("\n".join(chats).encode("utf-8", "replace"))
            assert found is None or 1 in found or "\ud83d" in text


def test_lines_without_anything_are_not_suspect() -> None:
    said = [
        "In 1990 there were 12; who\nknows?",
        "Gr\u00f6\u00dfe \u2013 5 \u20ac",
        "\u65e5\u672c\u8a9e",
        'A "word" [1',
    ]
    chats = [json.dumps({"messages": [{"role": "user", "content": text}] * 2}, ensure_ascii=False) for text in said]
    assert suspect_lines("\n".join(chats).encode()) == [3]
    assert suspects(said, [text.encode() for text in said]) == [3]


def test_patterns_that_begin_with_what_all_have_find_the_same() -> None:
    for text in (
        "<s>",
        " <s> a",
        "a</s>",
        "</s><s>",
        "<|im_start|>",
        "<</SYS>>",
        "[/INST]",
        "[PAD]",
        "<bos>",
        "<\uff5cUser\uff5c>",
    ):
        assert [code for code, _ in screens.screen(text, text.encode())] == ["TPD129"], text
    for text in ("a <s>b</s> c", "[INST", "<pad", "a [b] <c>"):
        assert list(screens.screen(text, text.encode())) == [], text
    said = f"Write to {'x' * 70}.anna@post.de, please."
    assert list(screens.screen(said, said.encode())) == [("TPD112", "an address of 72 characters")]


def test_the_script_of_a_text_is_that_of_most_of_its_letters() -> None:
    texts = (
        "",
        "12, 3",
        "1. a",
        "\u00dcber",
        "\u041f\u0440\u0438\u0432\u0435\u0442 you",
        "\u65e5\u672c\u8a9e\u306e",
        "\U00020000\U00020001",
        "\U0001f600",
    )
    assert [SCRIPTS[number] for number in scripts_of(texts)] == [
        "none",
        "none",
        "Latin",
        "Latin",
        "Cyrillic",
        "Han",
        "Han",
        "none",
    ]


@pytest.mark.parametrize("told", [*TOLD, "As an AI ", "<think>", "```"])
def test_only_the_text_that_has_something_is_suspect(told: str) -> None:
    plain = ["In 1990 there were 12, or 13; who knows?", "A well-known box (of wood) is worth $5."]
    texts = [*plain, f"{plain[0]} {told} {plain[1]}", *plain]
    assert suspects(texts, [text.encode("utf-8", "surrogatepass") for text in texts]) == [2]


def test_conversations_are_judged_the_same_as_dictionaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [{"id": i, **record} for i, record in enumerate(clean_chats(400))]
    lines, _ = with_faults(chats, CHAT_FAULTS, 2)
    shared = [json.dumps({"conversations": [_shared(turn) for turn in chat["messages"]]}).encode() for chat in chats]
    plain = [json.dumps({"messages": chat["messages"]}).encode() for chat in chats]
    plain[7:9] = [
        plain[7].replace(b'content": "', b'content": "\\n\\u00e9 [INST] '),
        plain[8].replace(b"the", "th\u0435".encode()),
    ]
    for name, rows in (("chat", lines), ("shared", shared), ("plain", plain)):
        path = write(tmp_path / f"{name}.jsonl", rows)
        report, found = judged(path)
        with monkeypatch.context() as patch:
            patch.setattr(turns, "conversation_type", _no_type)
            slow, slowly = judged(path)
        assert report == slow
        for code in codes(report):
            assert list(found.rejected(code)) == list(slowly.rejected(code))
        assert json.dumps(found.counters, sort_keys=True) == json.dumps(slowly.counters, sort_keys=True)


def _shared(turn: dict[str, Any]) -> dict[str, Any]:
    return {"from": {"user": "human", "assistant": "gpt"}.get(turn["role"], turn["role"]), "value": turn["content"]}


def _no_type(record: object, layout: object) -> None:
    return None
