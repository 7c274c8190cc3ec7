"""Numbers as loggers spell them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.readers.values import LARGEST_STEP, as_float, as_step, clean_name, flatten, parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", 1.5),
        (" 5.90e-05 ", 5.9e-05),
        ("-.5", -0.5),
        ("1,234", 1234.0),
        ("+12,345,678.25", 12345678.25),
        ("9" * 400, math.inf),
        ("Infinity", math.inf),
        ("-INF", -math.inf),
        ("1.#INF", math.inf),
    ],
)
def test_numbers(text: str, number: float) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["NaN", "nan", " -nan", "-nan(ind)", "1.#QNAN", "-1.#IND"])
def test_not_a_number_is_a_number_that_was_logged(text: str) -> None:
    number = parse_number(text)
    assert number is not None
    assert math.isnan(number)


@pytest.mark.parametrize(
    "text", ["", " ", "14%", "1.5s", "0,5", "1,23", "12,34,567", "1_000", "\u0663", "0x10", "1e", "true", "59h:30m:19s"]
)
def test_no_numbers(text: str) -> None:
    assert parse_number(text) is None


def test_decoded_values() -> None:
    assert as_float(3) == 3.0
    assert as_float("2e3") == 2000.0
    assert as_float(10**400) == math.inf
    assert as_float(-(10**400)) == -math.inf
    others: list[object] = [True, None, [1], {}, "x"]
    assert [as_float(value) for value in others] == [None] * 5


@pytest.mark.parametrize(("value", "step"), [(7, 7), (7.0, 7), ("7", 7), ("2e+3", 2000), (-1, -1), ("1,000", 1000)])
def test_steps(value: object, step: int) -> None:
    assert as_step(value) == step


@pytest.mark.parametrize("value", [-2, 0.5, math.nan, math.inf, "inf", 2**63, 10**400, True, None, "x", [1]])
def test_no_steps(value: object) -> None:
    assert as_step(value) is None


@given(st.integers(-1, LARGEST_STEP))
def test_a_step_is_never_rounded(step: int) -> None:
    assert as_step(step) == step
    assert as_step(str(step)) == step


def test_nested_objects_flatten_and_lists_are_passed_over() -> None:
    record = {"a": {"b": 1, "c": {"d": 2}}, "e": [1, 2], "f": None}
    assert dict(flatten(record)) == {"a/b": 1, "a/c/d": 2, "f": None}


def test_nesting_is_bounded() -> None:
    record: dict[str, object] = {"x": 1}
    for _ in range(500):
        record = {"n": record}
    assert list(flatten(record)) == []


def test_a_lone_surrogate_can_be_written() -> None:
    assert clean_name("l\ud800ss").encode() == b"l?ss"
