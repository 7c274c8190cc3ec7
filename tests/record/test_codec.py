"""State that is stored without pickle comes back as it was."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.errors import InputError
from trainproof.record.codec import Raw, decode, encode

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers())
    ),
    max_leaves=25,
)


def round_trip(value: Any) -> Any:
    tensors: dict[str, Raw] = {}
    stored = json.loads(json.dumps(encode(value, "state", tensors)))

    def load(name: str, array: bool) -> Any:
        assert array
        return np.frombuffer(tensors[name].data, tensors[name].dtype).reshape(tensors[name].shape)

    return decode(stored, load)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@given(trees)
def test_plain_state(value: Any) -> None:
    assert same(round_trip(value), value)


def test_names_that_look_like_marks() -> None:
    for value in ({"$t": "x"}, {"$d": [[1, 2]]}, {"$": 1}, {"a": {"$b": ""}}):
        assert round_trip(value) == value


def test_arrays() -> None:
    state = {"keys": np.arange(5, dtype=np.uint32), "at": 3, "numbers": [np.ones((2, 2)), np.float32(0.5)]}
    back = round_trip(state)
    assert back["keys"].tolist() == [0, 1, 2, 3, 4]
    assert (back["numbers"][0].shape, back["numbers"][1]) == ((2, 2), 0.5)


def test_what_only_pickle_could_store_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"the state scheduler.fn holds a function, which cannot be stored without pickle"
    ):
        encode({"fn": test_arrays}, "scheduler", {})


@pytest.mark.parametrize("stored", [{"$q": 1}, {"$d": 3}, {"$d": [[1]]}, {"$f": "x"}, {"$l": 5}])
def test_other_json_is_refused(stored: Any) -> None:
    with pytest.raises(InputError, match="a broken state"):
        decode(stored, lambda name, _: name)
