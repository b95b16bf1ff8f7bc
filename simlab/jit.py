"""The one way in which simlab compiles a function."""

import functools
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import types
from numba.core.caching import IndexDataCacheFile
from numba.core.options import DefaultOptions

P = ParamSpec("P")
R = TypeVar("R")

_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
"""numba's own kernels are compiled so; its type hints leave the option out. Without it all works, and takes longer."""


_unliteral: Callable[[object], object] = types.unliteral
"""From the type of a number in a program's text to that of numbers like it."""

_WITHIN: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""A kernel that another calls needs no entry points for Python and C; these take as long to compile as a small one."""


def _widened(kind: object) -> object:
    """The type that a kernel is compiled for when another calls it with this one.

    To numba a number in a program's text, such as the 0 that a count begins with, has a type of its own, and int32 and
    int64 are two; each would compile the kernel again, with all that it calls. Sums of int32 are int64 in numba, so
    that a kernel does the same with both.
    """
    plain: object = _unliteral(kind)
    return types.int64 if plain == types.int32 else plain


class _KernelFiles(IndexDataCacheFile):
    """Where one kernel is kept on disk, under names that no other process can take.

    numba numbers the files. Two processes that compile a kernel for two types at once would give both the same number,
    and a third would run the code of one type on the other.
    """

    def _load_index(self) -> dict[object, str]:
        try:
            return cast(dict[object, str], super()._load_index())  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged index, or one that names types of an older simlab, raises anything
            return {}

    def load(self, key: object) -> object:
        try:
            kept: object = super().load(key)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - what is damaged raises anything when it is unpickled
            kept = None
        if kept is None:
            _count_missing()
        return kept

    def save(self, key: object, data: object) -> None:
        try:
            self._save(key, data)
        except OSError as error:
            _say_not_kept(f"{self._cache_path}: {error.strerror or error}")

    def _save(self, key: object, data: object) -> None:
        folder = Path(self._cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        index = self._load_index()
        if not index:  # the first of this source: what is there was compiled from another
            for old in folder.glob(self._index_name.replace(".nbi", ".*.nbc")):
                old.unlink(missing_ok=True)
        index[key] = self._data_name(uuid.uuid4().int)
        self._save_data(index[key], data)
        self._save_index(index)


_MANY_MISSING = 5
_num_missing = [0]


def _count_missing() -> None:
    """Say on a terminal, once, what takes so long where many functions are compiled for the first time."""
    _num_missing[0] += 1
    if _num_missing[0] == _MANY_MISSING and sys.stderr.isatty():
        sys.stderr.write("Compiling for this processor, once after an install: up to a minute ...\n")


_NOT_KEPT: list[str] = []
"""Why compiled functions cannot be kept, once that was said."""


def _say_not_kept(reason: str) -> None:
    """Once, that every run compiles anew, and what to do."""
    if not _NOT_KEPT:
        sys.stderr.write(
            f"simlab: compiled functions cannot be kept ({reason}), so each run compiles them anew, for minutes; set "
            "NUMBA_CACHE_DIR to a folder that can be written\n"
        )
    _NOT_KEPT.append(reason)


def _with_files(function: Callable[..., object], ending: str, options: Mapping[str, Any]) -> object:
    """Under numba, with the options that every kernel has, and kept in files of its own.

    They lie below ``SIMLAB_KERNELS``, where that is set, by the module's name; numba's folders go by the path of the
    source. Who sets ``SIMLAB_KERNELS``, as the tests do, answers for it that all checkouts that use the folder have the
    same kernels.
    """
    decorate = functools.partial(numba.njit, nogil=True, error_model="numpy", **options)
    try:
        compiled: Any = decorate(cache=True)(function)
    except RuntimeError:  # numba finds no folder: simlab's own is read-only, and there is none of the user
        _say_not_kept("no folder can be written")
        return decorate()(function)
    cache: Any = getattr(compiled, "_cache", None)
    files = getattr(cache, "_cache_file", None)
    if type(files) is IndexDataCacheFile:
        folder = os.environ.get("SIMLAB_KERNELS")
        path = Path(folder, function.__module__) if folder else files._cache_path
        stamp = cache._impl.locator.get_source_stamp()
        cache._cache_file = _KernelFiles(str(path), cache._impl.filename_base + ending, stamp)
    return compiled


def _compiled(function: Callable[P, R], options: Mapping[str, Any]) -> Callable[P, R]:
    """Under numba, once to be called from Python and once to be called by other kernels, each when it is asked for.

    A numba that resolves calls in another way compiles one for both, which takes longer and gives the same.
    """
    called: Any = _with_files(function, "", options)

    @functools.cache
    def within() -> Any:  # noqa: ANN401 - numba has no types
        return _with_files(function, ".within", {**options, **_WITHIN})

    if hasattr(called, "get_call_template"):
        called.get_call_template = lambda args, kws: within().get_call_template(
            tuple(map(_widened, args)), {name: _widened(kind) for name, kind in kws.items()}
        )
        called.get_overload, called.within = lambda signature: within().get_overload(signature), within
    return cast(Callable[P, R], called)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba: without the GIL, and kept on disk between runs.

    numba's decorators carry no types, so a function under ``numba.njit`` would reach a type
    checker as "anything", and every call to it would go unchecked. Here the compiled function
    keeps the signature it was written with. ``nogil`` lets a caller spread rows over threads.
    ``fastmath`` is never on: it would let the compiler reorder sums and fuse a multiplication
    with an addition, and the same numbers would differ from one machine to the next. A division
    by zero gives what numpy gives and raises nothing; the check for it keeps loops from being
    vectorised. A kernel that may divide by an integer zero tests for it itself. Arrays are copied with loops: to
    assign one to a slice, numba compiles the sentence that it would raise, which takes a second or more.

    The file on disk is renewed when the module of *this* function changes, not when a kernel that it calls, a constant
    that it imports or the name of a tuple that it takes changes in another module. After such an edit delete
    ``__pycache__/*.nb*``.

    Args:
        function: a function that numba's nopython mode can compile.

    Returns:
        The compiled function, under the same signature. The original is its ``py_func``.
    """
    return _compiled(function, {})


def inlined_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A `kernel` whose machine code is copied into the kernels that call it.

    For small scalar functions inside a loop over the vocabulary: the compiler does not vectorise
    a loop that calls, and the difference is a factor of five. numba's ``inline="always"`` copies the
    program's text, which is then compiled anew at each call.
    """
    return _compiled(function, {"forceinline": True})


def borrowing_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A `kernel` that makes no array and returns none: it works in those of its caller.

    numba counts what refers to an array, with an atomic addition for each array that is handed on or taken out of a
    tuple. In a kernel that is called for every root, or that hands arrays on within a loop, this takes longer than
    the work. A caller that waits holds its arrays, so here nothing is counted; what would make an array is refused
    when it is compiled.
    """
    return _compiled(function, _UNCOUNTED)
