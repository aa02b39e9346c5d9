"""What makes two sweeps the same: every number, name and function they are made of, as JSON and as a hash."""

import dataclasses
import functools
import hashlib
import inspect
import json
import math
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradflow.callables import cells

LONGEST_LIST = 1000
WRITTEN = (
    "__init__",
    "__eq__",
    "__hash__",
    "__repr__",
    "__setattr__",
    "__delattr__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
)
BYTECODE = "bytecode of Python"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLAIN = (bool, int, str, type(None))


def plain(value: Any, seen: set[int] | None = None) -> Any:
    """Return what JSON can hold and a later process will find equal.

    Functions are known by their source and by what it refers to in its own module: constants, classes, and functions in
    turn. A lambda is known by its bytecode, which each version of Python writes in its own way.

    Args:
        value: anything that a sweep is made of.
        seen: identities of the functions met so far, which are not gone through again.

    Returns:
        Text, numbers, lists and dictionaries.
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    seen = set() if seen is None else seen
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, types.MethodType):
        return {"function": value.__qualname__, "of": plain(value.__self__, seen), **plain(value.__func__, seen)}
    if isinstance(value, functools.partial):
        return {"partial": plain(value.func, seen), "with": plain([value.args, value.keywords], seen)}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {str(key): plain(item, seen) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _short([plain(item, seen) for item in value])
    if isinstance(value, types.FunctionType):
        return _function(value, seen)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name), seen) for field in dataclasses.fields(value)}
        return {"type": _named(type(value)), **fields}
    return _named(value)


def digest(spec: Any) -> str:
    """Return the SHA-256 of a spec."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def differences(earlier: Any, here: Any, name: str = "") -> Iterator[str]:
    """Yield what differs between two specs as `name = earlier value (here new value)`.

    Args:
        earlier: of the store.
        here: of this sweep.
        name: of the part that is compared.

    Yields:
        One text a difference.
    """
    if earlier == here:
        return
    if name in ("build", "observe") or (_is_function(earlier) and _is_function(here)):
        written = [part[BYTECODE] for part in (earlier, here) if isinstance(part, dict) and BYTECODE in part]
        if len(set(written)) == 2:
            yield (
                f"{name} holds a lambda, known by its bytecode of Python {written[0]} (here {written[1]}; a function "
                "written by `def` in a module is known by its source, to every Python)"
            )
            return
        same = isinstance(earlier, dict) and isinstance(here, dict) and earlier.get("function") == here.get("function")
        yield f"{name} has another source" if same else f"{name} is {_title(earlier)} (here {_title(here)})"
    elif isinstance(earlier, dict) and isinstance(here, dict):
        for part in dict.fromkeys([*earlier, *here]):
            yield from differences(earlier.get(part), here.get(part), f"{name}.{part}".lstrip("."))
    else:
        yield f"{name} = {_cut(earlier)} (here {_cut(here)})"


def _is_function(value: Any) -> bool:
    return isinstance(value, dict) and "function" in value


def _title(value: Any) -> str:
    return str(value.get("function", "another object") if isinstance(value, dict) else value)


def _cut(value: Any) -> str:
    text = json.dumps(value)
    if len(text) <= 60:
        return text
    size = f" ({len(value)} values)" if isinstance(value, list) else ""
    return text[:50] + "..." + size


def _array(value: Any) -> Any:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"key": np.asarray(jax.random.key_data(value)).tolist()}
    array = np.asarray(value)
    if array.ndim <= 1 and array.size <= LONGEST_LIST and array.dtype.kind in "biufU":
        return plain(array.tolist())
    content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {"array": content, "shape": list(array.shape), "dtype": str(array.dtype)}


def _short(values: list) -> Any:
    if len(values) <= LONGEST_LIST:
        return values
    return {"values": len(values), "first": values[0], "last": values[-1], "digest": digest(values)}


def _named(value: Any) -> str:
    """Return the name of a class, a built-in or a wrapped function; of another object its type and text."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}"
    text = repr(value)
    return _named(type(value)) + ("" if " at 0x" in text else f" {text}")


def _function(function: types.FunctionType, seen: set[int]) -> dict[str, Any]:
    if id(function) in seen:
        return {"function": function.__qualname__}
    seen.add(id(function))
    code = function.__code__
    reached = _globals(function) | cells(function)
    defaults = [function.__defaults__, function.__kwdefaults__]
    parts = [_text(function, code), plain(defaults, seen), plain(reached, seen)]
    found = {"function": function.__qualname__, "digest": digest(parts)}
    return {**found, BYTECODE: PYTHON} if isinstance(parts[0], list) or _holds_bytecode(parts[1:]) else found


def _holds_bytecode(value: Any) -> bool:
    """Return whether a function in a spec is known by its bytecode."""
    if isinstance(value, dict):
        return BYTECODE in value or _holds_bytecode(list(value.values()))
    return isinstance(value, list) and any(map(_holds_bytecode, value))


def _text(function: types.FunctionType, code: types.CodeType) -> Any:
    """Return the source of a named function; of a lambda its program, since its source is the statement around it."""
    if function.__name__ != "<lambda>":
        try:
            return textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            pass
    return _program(code)


def _program(code: types.CodeType) -> list:
    constants = [_program(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
    sets = [repr(sorted(map(repr, item))) for item in code.co_consts if isinstance(item, frozenset)]
    kept = [text for text, item in zip(constants, code.co_consts, strict=True) if not isinstance(item, frozenset)]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), kept, sets]


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function reads from its own module: numbers, text, arrays, functions and classes written there."""
    found = {}
    for name in sorted(_read(function.__code__)):
        value = _unwrapped(function.__globals__.get(name))
        own = isinstance(value, types.FunctionType | type) and value.__module__ == function.__module__
        if own and isinstance(value, type):
            found[name] = _class(value)
        elif own or (isinstance(value, bool | int | float | str | tuple | jax.Array | np.ndarray)):
            found[name] = value
    return found


def _class(kind: type) -> dict[str, Any]:
    """Return the methods of a class and the defaults of its fields; what dataclasses write follows from those."""
    members = {name: _bare(member) for name, member in vars(kind).items()}
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    found = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    return found | {
        name: member
        for name, member in members.items()
        if isinstance(member, types.FunctionType) and member.__module__ == kind.__module__ and not _is_written(member)
    }


def _is_written(method: types.FunctionType) -> bool:
    """Return whether a dataclass wrote the method, whose program differs between versions of Python."""
    return method.__name__ in WRITTEN and method.__code__.co_filename == "<string>"


def _bare(member: Any) -> Any:
    """Return the function behind a member of a class: a property, a class method, a method that Equinox wraps."""
    for name in ("fget", "__func__", "method"):
        member = getattr(member, name, None) or member
    return _unwrapped(member)


def _read(code: types.CodeType) -> set[str]:
    inner = (_read(item) for item in code.co_consts if isinstance(item, types.CodeType))
    return set(code.co_names).union(*inner)


def _unwrapped(value: Any) -> Any:
    return inspect.unwrap(value) if callable(value) else value
