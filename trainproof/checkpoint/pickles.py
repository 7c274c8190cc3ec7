"""A pickle machine that builds plain data only. It imports nothing and calls nothing that a pickle names.

A pickle is a program; `pickletools` only splits it into instructions. Here a class or a function that it names is a `Named`, a call of one
an `Opaque`, whatever it would have done; a few constructors of containers and of tensors are known, and their result is built by us.
A pickle that names a part of the standard library which no checkpoint needs, such as os.system, is refused as a whole.
"""

from __future__ import annotations

import pickletools
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from trainproof.errors import InputError

#: a pickle of a checkpoint holds names and numbers, not the tensors: 64 MiB and 4 million instructions are far beyond any of 1e5 tensors
MOST_BYTES = 64 << 20
MOST_STEPS = 4_000_000
#: values, and characters, that calls may copy: no more than can be written in so many instructions, and bytes
MOST_COPIED: dict[type, int] = {
    list: MOST_STEPS,
    tuple: MOST_STEPS,
    dict: MOST_STEPS,
    set: MOST_STEPS,
    str: MOST_BYTES,
    bytes: MOST_BYTES,
}
#: parts of a tuple that is a key, and characters of each; Python's hash of a smaller whole number is the number itself
MOST_IN_KEY, MOST_SPELLED, LEAST_HASHED = 8, 200, 2**60
#: of the standard library, what checkpoints hold: containers, options, paths, times
PLAIN = frozenset(
    f"{module}.{name}"
    for module, names in {
        "collections": "OrderedDict defaultdict Counter deque namedtuple",
        "builtins": "set frozenset list dict tuple int float complex bool str bytes bytearray slice range object getattr type NoneType",
        "__builtin__": "set frozenset list dict tuple int long float complex bool str unicode bytes bytearray slice xrange object getattr",
        "copyreg": "_reconstructor",
        "copy_reg": "_reconstructor",
        "_codecs": "encode",
        "argparse": "Namespace",
        "types": "SimpleNamespace",
        "pathlib": "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath",
        "pathlib._local": "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath",
        "datetime": "datetime timedelta date time timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "uuid": "UUID",
        "enum": "Enum IntEnum StrEnum",
        "functools": "partial",
        "operator": "itemgetter attrgetter",
        "random": "Random",
        "typing": "Any",
    }.items()
    for name in names.split()
)
_STANDARD = frozenset(sys.stdlib_module_names) | {"__builtin__", "copy_reg", "nt", "posix", "commands"}


class Named(NamedTuple):
    """A class or function that a pickle names; never looked up."""

    name: str


class Persistent(NamedTuple):
    """A value that is stored outside of the pickle: torch's reference to a storage."""

    key: Any


class Opaque:
    """An object that a pickle would have made by calling `name` with `args`: nothing was called. `state` and `items` were set on it."""

    def __init__(self, name: str, args: Any) -> None:
        self.name, self.args = name, args
        self.state: Any = None
        self.items: dict[Any, Any] = {}

    def get(self, key: str) -> Any:
        """An attribute of the object, as its state or its items have it; None where they have none."""
        for where in (self.state, self.items):
            if isinstance(where, dict) and key in where:
                return where[key]
        return None


Rebuild = Callable[[str, Any], Any]
_MARK = object()


def load(data: bytes, rebuild: Rebuild | None = None) -> Any:
    """The plain data of a pickle: None, bool, int, float, str, bytes, list, tuple, dict, set, Named, Persistent, Opaque.

    rebuild: (name, args) -> what a call of that name makes, or None where it does not know the name. Raises InputError for what is no
    pickle, is over the bounds, or names what no checkpoint needs; the message has no path.
    """
    if len(data) > MOST_BYTES:
        raise InputError(f"a pickle of {len(data) >> 20} MiB, expected at most {MOST_BYTES >> 20}")
    machine = _Machine(rebuild or _unknown)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MOST_STEPS:
                raise InputError(f"a pickle of more than {MOST_STEPS:,} instructions")
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.step(opcode.name, argument)
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        struct.error,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"a broken pickle ({type(error).__name__})") from None
    raise InputError("a pickle that does not end")


def _unknown(name: str, args: Any) -> None:
    """No call is known."""


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_IGNORED = frozenset({"PROTO", "FRAME"})
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE "
    "BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8".split()
)


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self, rebuild: Rebuild) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.rebuild = rebuild
        self.copied: dict[type, int] = {}

    def step(self, name: str, argument: Any) -> None:
        """One instruction. Raises InputError for one that checkpoints do not use."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name not in _IGNORED:
            handler = getattr(self, f"_{name.lower()}", None)
            if handler is None:
                raise InputError(f"a pickle with the instruction {name}, which no checkpoint needs; refused")
            handler(argument)

    # the stack and the memo

    def _mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def _marked(self) -> list[Any]:
        """What lies above the last mark; both are taken off."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        taken = self.stack[at + 1 :]
        del self.stack[at:]
        return taken

    def _pop(self, _: Any) -> None:
        self.stack.pop()

    def _pop_mark(self, _: Any) -> None:
        self._marked()

    def _dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _binput(self, at: int) -> None:
        self.memo[int(at)] = self.stack[-1]

    _put = _long_binput = _binput

    def _binget(self, at: int) -> None:
        self.stack.append(self.memo[int(at)])

    _get = _long_binget = _binget

    # containers

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._marked()))

    def _some(self, count: int) -> None:
        taken = tuple(self.stack[-count:])
        if len(taken) < count:
            raise IndexError
        del self.stack[-count:]
        self.stack.append(taken)

    def _tuple1(self, _: Any) -> None:
        self._some(1)

    def _tuple2(self, _: Any) -> None:
        self._some(2)

    def _tuple3(self, _: Any) -> None:
        self._some(3)

    def _list(self, _: Any) -> None:
        self.stack.append(self._marked())

    def _dict(self, _: Any) -> None:
        taken = self._marked()
        self.stack.append({})
        self._set_pairs(taken)

    def _frozenset(self, _: Any) -> None:
        self.stack.append(frozenset(map(_key, self._marked())))

    def _append(self, _: Any) -> None:
        self._extend([self.stack.pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._marked())

    def _extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, Opaque):
            target.items.update(enumerate(values, len(target.items)))
        else:
            raise TypeError

    def _additems(self, _: Any) -> None:
        values = self._marked()
        if isinstance(self.stack[-1], set):
            self.stack[-1].update(map(_key, values))
        else:
            self._extend(values)

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_pairs([key, value])

    def _setitems(self, _: Any) -> None:
        self._set_pairs(self._marked())

    def _set_pairs(self, flat: list[Any]) -> None:
        target = self.stack[-1]
        items = target.items if isinstance(target, Opaque) else target
        if not isinstance(items, dict) or len(flat) % 2:
            raise TypeError
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            items[_key(key)] = value

    # names, and calls that are not made

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(_named(module, name))

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError
        self.stack.append(_named(module, name))

    def _reduce(self, _: Any) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self._called(function, args))

    _newobj = _reduce

    def _newobj_ex(self, _: Any) -> None:
        keywords, args, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        made = self._called(function, args)
        if isinstance(made, Opaque):
            made.items["kwargs"] = keywords
        self.stack.append(made)

    def _obj(self, _: Any) -> None:
        function, *args = self._marked()
        self.stack.append(self._called(function, tuple(args)))

    def _inst(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(self._called(_named(module, name), tuple(self._marked())))

    def _called(self, function: Any, args: Any) -> Any:
        """What a call would have made, where that is plain data; else the call itself, not made."""
        if not isinstance(function, Named):
            return Opaque("a call of a value", (function, args))
        self._count(args)
        self._count(args[0] if isinstance(args, tuple) and args else None)
        made = _plain(function.name, args)
        if made is None:
            made = self.rebuild(function.name, args)
        return Opaque(function.name, args) if made is None else made

    def _count(self, value: Any) -> None:
        """Raises InputError where a pickle lets the same values be copied again and again."""
        most = MOST_COPIED.get(type(value))
        if most is not None:
            copied = self.copied[type(value)] = self.copied.get(type(value), 0) + len(value)
            if copied > most:
                raise InputError(f"a pickle that copies more than {most:,} values; refused")

    def _build(self, _: Any) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Opaque):
            self.stack[-1].state = state[0] if _only_dict(state) else state

    def _binpersid(self, _: Any) -> None:
        self.stack.append(Persistent(self.stack.pop()))

    def _persid(self, argument: str) -> None:
        self.stack.append(Persistent(argument))


def _only_dict(state: Any) -> bool:
    """Whether a state is the pair (attributes, slots) of which only the first is there."""
    return isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict) and not state[1]


def _key(value: Any) -> Any:
    """`value` where it is a plain key; a short tuple of such as it is spelled; else its kind. Hashing a tuple of tuples can take longer than
    the universe has, and tuples and large numbers can be chosen so that all have the same hash."""
    if type(value) is tuple and len(value) <= MOST_IN_KEY and all(map(_short, value)):
        return str(value)
    plain = value is None or isinstance(value, (str, bytes, float, Named, Opaque))
    return value if plain or (isinstance(value, int) and _short(value)) else f"<{type(value).__name__}>"


def _short(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) < LEAST_HASHED
    return value is None or isinstance(value, float) or (isinstance(value, (str, bytes)) and len(value) <= MOST_SPELLED)


def _named(module: str, name: str) -> Named:
    """Raises InputError for a part of the standard library that no checkpoint needs, also when reached through another module."""
    full = f"{module}.{name}"
    standard = module.partition(".")[0] in _STANDARD or not _STANDARD.isdisjoint(name.split(".")[:-1])
    if standard and full not in PLAIN:
        raise InputError(
            f"its pickle asks for {full[:MOST_SPELLED]}, which no checkpoint needs; refused, nothing was executed"
        )
    return Named(full)


def _plain(name: str, args: Any) -> Any:
    """Containers, strings of bytes and numbers, built from plain arguments; None for every other call."""
    first = args[0] if isinstance(args, tuple) and args else None
    if name == "collections.OrderedDict":
        pairs = first if isinstance(first, (list, tuple)) else ()
        return {_key(key): value for key, value in pairs}
    if name in ("collections.defaultdict", "collections.Counter"):
        return dict(first) if isinstance(first, dict) else {}
    if name in ("builtins.set", "__builtin__.set", "builtins.frozenset", "__builtin__.frozenset"):
        return set(map(_key, first)) if isinstance(first, (list, tuple)) else set()
    if name in ("builtins.bytes", "__builtin__.bytes", "builtins.bytearray", "__builtin__.bytearray"):
        return first if isinstance(first, bytes) else None if args else b""
    if name == "_codecs.encode" and isinstance(first, str):
        return first.encode("latin-1", "replace")
    if name == "torch.Size":
        return tuple(first) if isinstance(first, (list, tuple)) else ()
    if name == "torch.device":
        return ":".join(str(arg) for arg in args if isinstance(arg, (str, int)))
    if name.endswith(".multiarray.scalar") and len(args) == 2:
        return _scalar(*args)
    return None


def _scalar(dtype: Any, data: Any) -> Any:
    """A NumPy number from its type and its bytes."""
    formats = {"i8": "<q", "i4": "<i", "u8": "<Q", "u4": "<I", "f8": "<d", "f4": "<f", "b1": "?"}
    code = dtype.args[0] if isinstance(dtype, Opaque) and dtype.args else None
    form = formats.get(code) if isinstance(code, str) else None
    if form is None or not isinstance(data, bytes) or len(data) != struct.calcsize(form):
        return None
    return struct.unpack(form, data)[0]
