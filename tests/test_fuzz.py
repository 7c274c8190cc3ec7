"""Damaged logs of every format: none brings down the readers or the judge. `make fuzz` reads fifty times as many."""

from __future__ import annotations

import random

import pytest

from tools import fuzz
from trainproof.readers.console.megatron import MegatronReader

FORMATS = fuzz.by_format()
INPUTS = 200


@pytest.mark.parametrize("format_name", FORMATS)
def test_damaged_logs_are_read_or_refused(format_name: str) -> None:
    found = FORMATS[format_name]
    each = -(-INPUTS // len(found))
    assert [line for sample in found for line in fuzz.failures(format_name, sample, each)] == []


def test_mutations_are_the_same_each_time_and_differ_from_each_other() -> None:
    sample = next(iter(FORMATS.values()))[0]
    made = list(fuzz.inputs(sample, 50))
    assert made == list(fuzz.inputs(sample, 50))
    assert len({*made, sample.read_bytes()}) == 51


def test_the_test_of_damaged_logs_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: MegatronReader, *_: object) -> None:
        raise ValueError("no number in it")

    monkeypatch.setattr(MegatronReader, "read", careless)
    told = fuzz.failures("megatron", FORMATS["megatron"][0], 2)
    assert [line.partition(": ")[2] for line in told] == ["ValueError: no number in it"] * 2


def test_mutations_change_one_place_at_a_time() -> None:
    data = bytes(range(256)) * 4
    assert all(fuzz.mutated(data, random.Random(seed)) != data for seed in range(20))
