"""Pickles that would do harm, and archives that lie: nothing is executed, one line says why."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.archives import Call, Global, Pickle, save_safetensors, save_torch, torch_archive
from trainproof.checkpoint import pickles
from trainproof.checkpoint.opening import open_checkpoints
from trainproof.checkpoint.optimizers import optimizers, scheduler_step
from trainproof.checkpoint.scan import scan
from trainproof.errors import InputError


def payloads(mark: Path) -> dict[str, bytes]:
    """Pickles each of which makes the file `mark` when Python loads it, by one way or another."""
    python = f"open({str(mark)!r}, 'w').close()"
    shell = f"touch {mark}"
    calls: dict[str, Any] = {
        "os.system": Call("os system", shell),
        "posix.system": Call("posix system", shell),
        "eval": Call("builtins eval", python),
        "exec": Call("builtins exec", python),
        "python 2 eval": Call("__builtin__ eval", python),
        "open": Call("builtins open", str(mark), "w"),
        "io.open": Call("io open", str(mark), "w"),
        "subprocess": Call("subprocess call", ["touch", str(mark)]),
        "Popen": Call("subprocess Popen", ["touch", str(mark)]),
        "os.popen": Call("os popen", shell),
        "os.mkdir": Call("os mkdir", str(mark)),
        "pathlib": Call("pathlib Path.touch", Call("pathlib PosixPath", str(mark))),
        "timeit": Call("timeit timeit", python, "pass", Global("time perf_counter"), 1),
        "code": Call("code.InteractiveInterpreter runcode", python),
        "apply": Call("builtins map", Global("os system"), [shell]),
        "getattr": Call("builtins getattr", Call("importlib import_module", "os"), "system"),
        "shutil": Call("shutil copy", "/etc/hostname", str(mark)),
        "logging": Call("logging FileHandler", str(mark)),
        "numpy": Call("numpy.testing._private.utils runstring", python, {}),
        "in a tensor's place": Call(
            "torch._utils _rebuild_tensor_v2", Call("os system", shell), 0, (1,), (1,), False, None
        ),
        "in the state": Call("argparse Namespace", state={"a": Call("os system", shell)}),
        "as a key": {Call("builtins eval", python): 1},
    }
    found = {name: Pickle().dump(call) for name, call in calls.items()}
    found["instance"] = f"(S'{shell}'\nios\nsystem\n.".encode()
    found["object"] = f"(cos\nsystem\nS'{shell}'\no.".encode()
    found["through a module of torch"] = _stacked("torch.serialization", "os.system", shell)
    found["stack global"] = _stacked("os", "system", shell)
    found["keywords"] = b"\x80\x04\x8c\nsubprocess\x8c\x05Popen\x93)}\x8c\x04args" + _text(shell) + b"s\x92."
    return found


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _stacked(module: str, name: str, argument: str) -> bytes:
    return b"\x80\x04" + _text(module) + _text(name) + b"\x93" + _text(argument) + b"\x85R."


@pytest.mark.parametrize("name", sorted(payloads(Path("mark"))))
def test_no_payload_is_executed(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = save_torch(tmp_path / "model.pt", None, payloads(mark)[name])
    if name == "numpy":  # not of the standard library: it stays an object that is not built, and is told
        assert open_checkpoints(str(path))[0].tensors == ()
    else:
        with pytest.raises(InputError, match=r"no checkpoint needs; refused|without a storage") as told:
            open_checkpoints(str(path))
        assert "\n" not in str(told.value)
        assert str(told.value).startswith(str(path))
    assert not mark.exists()


@pytest.mark.parametrize("name", ["os.system", "eval", "instance", "stack global", "subprocess"])
def test_the_payloads_are_real(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "payload").write_bytes(payloads(mark)[name])
    subprocess.run(
        [sys.executable, "-c", f"import pickle; pickle.load(open({str(tmp_path / 'payload')!r}, 'rb'))"], check=False
    )
    assert mark.exists()


def test_a_hash_that_takes_for_ever_is_not_computed() -> None:
    nested = b"\x80\x02)" + b"q\x00h\x00\x86" * 1 + b"".join(b"2\x86" for _ in range(200))
    keyed = nested.replace(b"\x80\x02", b"\x80\x02}", 1) + b"K\x01s."
    assert pickles.load(keyed) == {"<tuple>": 1}


def _long(number: int) -> bytes:
    data = pickle.encode_long(number)
    return b"\x8a" + bytes([len(data)]) + data


def test_keys_that_are_chosen_to_have_the_same_hash_are_not_hashed() -> None:
    same = [(2**61 - 1) * i for i in range(1, 40)]
    assert {hash(number) for number in same} == {0}
    numbers = b"\x80\x02}(" + b"".join(_long(number) + b"N" for number in same) + b"u."
    assert pickles.load(numbers) == {"<int>": None}
    assert pickles.load(pickle.dumps({(-1, "a"): 1, (-2, "a"): 2})) == {"(-1, 'a')": 1, "(-2, 'a')": 2}
    for key in ((0,) * 9, (2**61,), ("a" * 201,), ((1,),)):
        assert pickles.load(pickle.dumps({key: 1})) == {"<tuple>": 1}


BOMBS = {
    "dict": (
        b"}(" + b"".join(b"J" + struct.pack("<i", i) + b"N" for i in range(50_000)) + b"u",
        b"collections\nCounter",
    ),
    "list": (b"](" + b"N" * 50_000 + b"e", b"builtins\nset"),
    "text": (_text("a" * 1_000_000), b"_codecs\nencode"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_the_same_values_are_not_copied_again_and_again(name: str) -> None:
    value, call = BOMBS[name]
    bomb = b"\x80\x02" + value + b"q\x00c" + call + b"\nq\x01(" + b"h\x01h\x00\x85R0" * 1000 + b"l."
    with pytest.raises(InputError, match="a pickle that copies more than"):
        pickles.load(bomb)


def test_a_container_that_holds_itself_is_looked_through_once(tmp_path: Path) -> None:
    loop = b"]q\x00(" + b"h\x00" * 100_000 + b"e0"
    for part in ("optimizer", "scheduler", "rng", "model"):
        path = save_torch(tmp_path / f"{part}.pt", None, b"\x80\x02" + loop + b"}" + _text(part) + b"h\x00s.")
        (found,) = open_checkpoints(str(path))
        assert (found.tensors, optimizers(found), scheduler_step(found)) == ((), [], None)


def test_a_shape_of_many_dimensions_is_none(tmp_path: Path) -> None:
    shape = b"(" + b"K\x01" * 1000 + b"tq\x050"
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x01tQ"
    pickled = b"\x80\x02" + shape + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00h\x05h\x05\x89NtR."
    with pytest.raises(InputError, match="a tensor whose shape is no shape; refused"):
        open_checkpoints(str(save_torch(tmp_path / "model.pt", None, pickled)))


def test_instructions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_STEPS", 1000)
    with pytest.raises(InputError, match="more than 1,000 instructions"):
        pickles.load(b"\x80\x02" + b"K\x01" * 2000 + b".")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(-(2**59), 2**59), inner) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(plain, st.integers(0, 5))
def test_plain_data_is_what_pickle_wrote(value: Any, protocol: int) -> None:
    assert pickles.load(pickle.dumps(value, protocol)) == value


def read_or_refused(data: bytes) -> None:
    """The pickle is read, or refused in one line; anything else is a failure."""
    try:
        pickles.load(data)
    except InputError as refusal:
        told = str(refusal)
    else:
        told = "read"
    assert told
    assert "\n" not in told


@given(st.binary(max_size=200))
def test_noise_is_refused_in_one_line(data: bytes) -> None:
    read_or_refused(b"\x80\x02" + data)


@given(st.data())
def test_a_damaged_pickle_never_raises_anything_else(data: st.DataObject) -> None:
    good = bytearray(
        Pickle().dump(
            {"model": {"w": np.ones(3, np.float32)}, "step": 3, "o": Call("argparse Namespace", state={"a": 1})}
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(bytes(good))


def test_every_instruction_of_pickle_is_known_or_refused() -> None:
    for opcode in pickletools.opcodes:
        machine = pickles._Machine(pickles._unknown)
        machine.stack += [{}, "a", "b"]
        try:
            machine.step(opcode.name, None)
        except (InputError, TypeError, IndexError, KeyError, AttributeError, ValueError):
            continue


def refused(path: Path) -> str:
    with pytest.raises(InputError) as told:
        scan(open_checkpoints(str(path))[0])
    assert "\n" not in str(told.value)
    return str(told.value)


GOOD = {"w": np.arange(5000, dtype=np.float32)}


def rezipped(edit: Any, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A good archive, each (name, bytes) of it put through `edit`."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(torch_archive(GOOD))) as old, zipfile.ZipFile(out, "w", compression) as new:
        for entry in old.infolist():
            for name, data in edit(entry.filename, old.read(entry)):
                new.writestr(name, data)
    return out.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_lie_are_refused(tmp_path: Path) -> None:
    good = torch_archive(GOOD)
    path = tmp_path / "model.pt"

    def told(data: bytes) -> str:
        path.write_bytes(data)
        return refused(path)

    assert "cut" in told(good[: len(good) // 2])
    assert "cut" in told(good[:-10])
    assert "compressed" in told(rezipped(lambda n, d: [(n, d)], zipfile.ZIP_DEFLATED))
    assert "twice" in told(rezipped(lambda n, d: [(n, d), (n, d)] if n.endswith("data.pkl") else [(n, d)]))
    assert "out of its folder" in told(rezipped(lambda n, d: [(n, d), ("archive/../../x", b"")]))
    assert "out of its folder" in told(rezipped(lambda n, d: [(n, d), (f"/{n}", b"")]))
    assert "does not hold" in told(rezipped(lambda n, d: [(n, d[:100] if "/data/" in n else d)]))
    assert "does not hold" in told(rezipped(lambda n, d: [] if "/data/" in n else [(n, d)]))
    assert "big-endian" in told(rezipped(lambda n, d: [(n, b"big" if "byteorder" in n else d)]))
    assert "TorchScript" in told(
        rezipped(lambda n, d: [(n, d), ("archive/constants.pkl", b"")] if "pkl" in n else [(n, d)])
    )
    size = good.rfind(b"PK\x05\x06") + 12
    assert "directory" in told(good[:size] + b"\xf0\xff\xff\x7f" + good[size + 4 :])
    overlapping = bytearray(good)
    second = good.find(b"PK\x01\x02", good.find(b"PK\x01\x02") + 4)
    overlapping[second + 42 : second + 46] = b"\0\0\0\0"  # the second record is said to be where the first is
    assert "refused" in told(bytes(overlapping)) or "broken" in told(bytes(overlapping))


def test_other_files_are_named(tmp_path: Path) -> None:
    for data, name in (
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"", "an empty file"),
        (b"GGUF0000", "GGUF"),
        (b"hello there, this is text", "no checkpoint"),
        (pickle.dumps({"a": 1}), "bare pickle"),
    ):
        path = tmp_path / "model.bin"
        path.write_bytes(data)
        assert name in refused(path)
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    assert "NumPy archive" in refused(tmp_path / "a.npz")
    assert "no such file" in refused(tmp_path / "nothing.pt")
    (tmp_path / "empty").mkdir()
    assert "no checkpoint in this folder" in refused(tmp_path / "empty")


def test_safetensors_that_lie_are_refused(tmp_path: Path) -> None:
    path = save_safetensors(tmp_path / "m.safetensors", {"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)})
    good = path.read_bytes()
    header = good[8 : 8 + struct.unpack("<Q", good[:8])[0]]
    body = good[8 + len(header) :]

    def told(new: bytes, rest: bytes = body, length: int | None = None) -> str:
        path.write_bytes(struct.pack("<Q", len(new) if length is None else length) + new + rest)
        return refused(path)

    assert "cut" in told(header, body[:-1])
    assert "header is longer" in told(header, body, 1 << 40)
    assert "no JSON" in told(header[:-1] + b" ")
    assert "twice" in told(header.replace(b'"b"', b'"a"'))
    assert "follow" in told(header.replace(b"[16, 32]", b"[17, 33]"), body + b"\0")
    assert "agree" in told(header.replace(b"[4]", b"[5]", 1))
    assert "agree" in told(header.replace(b"[4]", b"[-4]", 1))
    assert "dtype" in told(header.replace(b"F32", b"F31", 1))


def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret.safetensors"}}')
    assert "leads out" in refused(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    assert "no weight_map" in refused(tmp_path)
