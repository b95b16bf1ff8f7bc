"""Policies given as Python objects: what they are called, and the ids of their sources and of what they hold.

The id of a policy says what its results depend on. A class of a file counts with the whole file, as ``mine.py:Mine``
does where it is typed. A class of a notebook, which has no file, counts with its source, with that of the bases and of
the functions and classes of the notebook that it uses, and with the values of the notebook's variables that it reads.
What is imported from installed packages does not count.
"""

import ast
import dataclasses
import dis
import hashlib
import inspect
import json
import linecache
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np

from simlab.errors import PolicyError, UsageError
from simlab.ids import content_digest, content_id
from simlab.policies import POLICIES
from simlab.policies.routing.routed_policy import PolicyClass
from simlab.untrusted.json_text import file_bytes

PLAIN = (bool, int, float, str, type(None))
"""Types of values that stand in tables and files as settings."""

_BUILT_IN = "simlab.policies.named."
_ID_LETTERS = 8
_IN_FILE = "put the class in a file, such as mine.py, and import it from there, or give `mine.py:{name}`"


@dataclasses.dataclass(frozen=True, slots=True)
class ClassSource:
    """A policy class, and what names it.

    Attributes:
        typed: how its label begins.
        name: in result rows: as in the table of policies, ``file.py:Class``, or of a notebook ``__main__:Class``.
        make: the class.
        artefact_ids: the digest of its source; empty of a policy of the table.
        held: of an object, the ids of fields that are no plain values.
    """

    typed: str
    name: str
    make: PolicyClass
    artefact_ids: Mapping[str, str]
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)


def is_policy_class(given: object) -> bool:
    """Whether something is a class that can be a policy's."""
    return isinstance(given, type) and callable(getattr(given, "select", None))


def check_is_policy(given: object) -> None:
    """Refuse what is neither a policy nor the class of one.

    Raises:
        PolicyError: with a sentence that says what was expected.
    """
    if is_policy_class(given) or (not isinstance(given, type) and callable(getattr(given, "select", None))):
        return
    shown = given.__name__ if isinstance(given, type) else repr(given)
    shown = shown if len(shown) <= _ID_LETTERS * 10 else f"{shown[: _ID_LETTERS * 10]}..."
    raise PolicyError(
        "a policy is a text such as ddtree:budget=16, an object with a method `select`, or the class of one; got "
        f"{shown}, which is of type {type(given).__name__}"
    )


def typed_only(given: Sequence[object], what: str) -> tuple[str, ...]:
    """The texts of policies, where objects do not fit.

    Raises:
        UsageError: one is no text.
    """
    for policy in given:
        if not isinstance(policy, str):
            name = policy.__name__ if isinstance(policy, type) else type(policy).__name__
            raise UsageError(f"{what}; {_IN_FILE.format(name=name)}; got an object of the class {name}")
    return tuple(str(policy) for policy in given)


def class_source(kind: type) -> ClassSource:
    """What the class of a policy is called, and the digest of its source.

    Raises:
        PolicyError: the source is not known, or the class has the name of another policy.
    """
    if kind.__module__.startswith(_BUILT_IN):
        for name in POLICIES:
            if POLICIES[name] is kind:
                return ClassSource(name, name, kind, {})
    name = kind.__name__
    if name in POLICIES or name == "autoregressive":
        raise PolicyError(f"a class of one's own may not be called `{name}`, as a policy of simlab is; rename it")
    path = _file_of(kind)
    if path is not None:
        digest = hashlib.sha256(file_bytes(path)).hexdigest()
        return ClassSource(name, f"{path.name}:{name}", kind, {"source": digest})
    return ClassSource(name, f"{kind.__module__}:{name}", kind, {"source": _NotebookSource(kind).digest()})


def settings_of_object(policy: object) -> tuple[dict[str, object], dict[str, str]]:
    """The fields of a policy: those that are plain values, and the content ids of the others.

    Raises:
        PolicyError: it is no dataclass, or holds something whose content has no id.
    """
    name = type(policy).__name__
    if not dataclasses.is_dataclass(policy):
        raise PolicyError(f"{name} must be a dataclass whose fields are its settings")
    plain, held = dict[str, object](), dict[str, str]()
    for field in dataclasses.fields(policy):
        if not field.init:
            continue
        value = getattr(policy, field.name)
        value = value.item() if isinstance(value, np.generic) else value
        if type(value) in PLAIN:
            plain[field.name] = value
        else:
            held[field.name] = content_id(_content(value, f"its field `{field.name}`", name))
    return plain, held


def typed_settings(policy: object, plain: Mapping[str, object], held: Mapping[str, str]) -> dict[str, str]:
    """The settings that differ from their defaults, as they are typed; of what cannot be typed the start of its id."""
    assert dataclasses.is_dataclass(policy)
    settings = {}
    for field in dataclasses.fields(policy):
        if field.name in held:
            settings[field.name] = held[field.name][:_ID_LETTERS]
        elif field.name in plain and not _is_default(field, plain[field.name]):
            settings[field.name] = _typed(plain[field.name])
    return settings


def _is_default(field: "dataclasses.Field[object]", value: object) -> bool:
    return type(value) is type(field.default) and value == field.default


def _typed(value: object) -> str:
    """A value as it is typed: plain text where that is read as the same text, else JSON."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_bare = re.fullmatch(r"[A-Za-z_][\w.+-]*", value) and ".." not in value
    return value if is_bare and value not in ("true", "false", "null", "NaN", "Infinity") else json.dumps(value)


def _file_of(kind: type) -> Path | None:
    """The file of a class; None of a class of a notebook, or one that a function made."""
    file_name = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file_name is None or "<locals>" in kind.__qualname__:
        return None
    path = Path(file_name)
    own = [function.__code__.co_filename for function in _functions(kind)]
    elsewhere = [name for name in own if not _same(Path(name), path)]
    return path if path.suffix == ".py" and path.is_file() and not elsewhere else None


def _same(first: Path, second: Path) -> bool:
    return first == second or (first.is_file() and second.is_file() and first.samefile(second))


def _functions(kind: type) -> Iterator[types.FunctionType]:
    """The functions that were written in the body of a class, those behind properties and decorators too."""
    module = vars(sys.modules[kind.__module__])
    for value in vars(kind).values():
        function: object = value
        if isinstance(value, property):
            function = value.fget
        elif isinstance(value, cached_property):
            function = value.func
        elif isinstance(value, staticmethod | classmethod):
            function = value.__func__
        while isinstance(function, types.FunctionType):
            # Functions that dataclasses make have no file, or are reprlib's.
            if function.__globals__ is module and function.__code__.co_filename != "<string>":
                yield function
            function = getattr(function, "__wrapped__", None)


class _NotebookSource:
    """The source of a class without a file, and of what it uses of the same notebook.

    Args:
        kind: the class.
    """

    def __init__(self, kind: type) -> None:
        self._name = kind.__name__
        self._parts: dict[str, object] = {}
        file_name = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file_name is not None and Path(file_name).is_file():  # a class that a function of this file made
            self._parts["file"] = hashlib.sha256(file_bytes(Path(file_name))).hexdigest()
        self._add_class(kind)

    def digest(self) -> str:
        """A digest of all of it."""
        return content_digest(self._parts)

    def _add_class(self, kind: type) -> None:
        key = f"class {kind.__qualname__}"
        if key in self._parts:
            return
        self._parts[key] = self._class_text(kind)
        for base in kind.__mro__[1:]:
            if not _is_installed(base):
                self._add_class(base)
        for function in _functions(kind):
            self._add_used(function)

    def _class_text(self, kind: type) -> str:
        """The lines of a class, found in those in which one of its methods was written."""
        for function in _functions(kind):
            code = function.__code__
            lines = linecache.getlines(code.co_filename)
            try:
                classes = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.ClassDef)]
            except (SyntaxError, ValueError):
                continue
            for node in classes:
                if node.name == kind.__name__ and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    return "".join(lines[first - 1 : node.end_lineno])
        raise PolicyError(
            f"the source of the class {kind.__name__} is not known here, so its results could not be told from those "
            f"of another version of it; {_IN_FILE.format(name=self._name)}"
        )

    def _add_function(self, function: types.FunctionType) -> None:
        key = f"function {function.__qualname__}"
        if key in self._parts:
            return
        try:
            self._parts[key] = inspect.getsource(function)
        except (OSError, TypeError) as error:
            raise PolicyError(
                f"the source of `{function.__name__}`, which {self._name} uses, is not known here; "
                f"{_IN_FILE.format(name=self._name)}"
            ) from error
        self._add_used(function)

    def _add_used(self, function: types.FunctionType) -> None:
        """What a function reads of the notebook, or of the function around it."""
        around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in around.items():
            with suppress(ValueError):  # a variable that has no value yet
                self._add_value(name, cell.cell_contents)
        for name in sorted(_globals_read(function.__code__)):
            if name in function.__globals__:
                self._add_value(name, function.__globals__[name])

    def _add_value(self, name: str, value: object) -> None:
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
            return
        if isinstance(value, type | types.FunctionType):
            if not _is_installed(value):
                self._add_class(value) if isinstance(value, type) else self._add_function(value)
        elif f"value {name}" not in self._parts:
            self._parts[f"value {name}"] = _content(value, f"the variable `{name}`", self._name)


def _globals_read(code: types.CodeType) -> set[str]:
    """The names of variables of the module that some code reads, and the code within it."""
    names = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return names.union(
        *(_globals_read(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    )


def _is_installed(value: "type | types.FunctionType") -> bool:
    """Whether a class or function comes from a module with a file, and not from a notebook or a script."""
    module = sys.modules.get(value.__module__)
    return value.__module__ != "__main__" and (module is None or module.__spec__ is not None)


def _content(value: object, what: str, name: str) -> object:
    """A JSON value that says what something holds."""
    cost_id = getattr(value, "cost_id", None)
    if isinstance(cost_id, str):
        return {"cost": cost_id}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": digest}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        kind = type(value)
        source: object = f"{kind.__module__}.{kind.__qualname__}"
        if not _is_installed(kind):
            source = _NotebookSource(kind).digest()
        return {"class": source, "fields": {key: _content(item, what, name) for key, item in fields.items()}}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return [[_content(key, what, name), _content(item, what, name)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [_content(item, what, name) for item in value]
    if type(value) in PLAIN and value == value:
        return value
    raise PolicyError(
        f"{what}, which `{name}` reads, is a {type(value).__name__}, and simlab cannot tell what it holds; give plain "
        "values, numpy arrays, or tuples, dicts and dataclasses of these"
    )
