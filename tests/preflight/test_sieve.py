"""What the patterns find in a text passes the sieve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.preflight.helpers import judged
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.preflight import screens, turns
from trainproof.preflight.sieve import suspects

TOLD = (
    "123-45-6789", "4539 1488 0343 6467", "4539-1488-0343-6467", "4539148803436467", "+49 170 1234567", "(555) 123-4567",
    "(555)123-4567", "sk-" + "a" * 24, "AKIA" + "B" * 16, "xoxb-1234567890", "hf_" + "a" * 32, "ghp_" + "a" * 36, "AIza" + "b" * 35,
    "-----BEGIN PRIVATE KEY", "<div>", "[INST]", "&nbsp;", "a@b.de", "\\u00e9", "\x00", "\x7f", "p\u0430y", "\ufffd", "\ud83d",
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
        assert 1 in suspects([text.encode("utf-8", "surrogatepass") for text in others])


@pytest.mark.parametrize("told", [*TOLD, "As an AI ", "<think>", "```"])
def test_only_the_text_that_has_something_is_suspect(told: str) -> None:
    plain = ["In 1990 there were 12, or 13; who knows?", "A well-known box (of wood) is worth $5."]
    texts = [*plain, f"{plain[0]} {told} {plain[1]}", *plain]
    assert suspects([text.encode("utf-8", "surrogatepass") for text in texts]) == [2]


def test_conversations_are_judged_the_same_as_dictionaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [{"id": i, **record} for i, record in enumerate(clean_chats(400))]
    lines, _ = with_faults(chats, CHAT_FAULTS, 2)
    shared = [json.dumps({"conversations": [_shared(turn) for turn in chat["messages"]]}).encode() for chat in chats]
    for name, rows in (("chat", lines), ("shared", shared)):
        path = write(tmp_path / f"{name}.jsonl", rows)
        report, found = judged(path)
        with monkeypatch.context() as patch:
            patch.setattr(turns, "conversation_type", _no_type)
            slow, slowly = judged(path)
        assert (report, found.rejected) == (slow, slowly.rejected)
        assert json.dumps(found.counters, sort_keys=True) == json.dumps(slowly.counters, sort_keys=True)


def _shared(turn: dict[str, Any]) -> dict[str, Any]:
    return {"from": {"user": "human", "assistant": "gpt"}.get(turn["role"], turn["role"]), "value": turn["content"]}


def _no_type(record: object, layout: object) -> None:
    return None
