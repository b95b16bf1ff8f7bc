"""Options in Python: what the command line's reader refuses is refused, and a value alone stands for a list."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import simlab
from simlab.errors import UsageError
from simlab.options import batch_sizes, checked, count, nested, option, study


@dataclass(frozen=True)
class Inner:
    """Options within others."""

    steps: int = option(3, "steps", "N")


@dataclass(frozen=True)
class Made:
    """Options of every sort."""

    limit: int | None = option(None, "a number", "N")
    share: float = option(0.5, "a share", "X")
    few: int = option(4, "a few", "N", read=count(0, 8))
    by: str | None = option(None, "a slice", choices=("dataset", "turn"))
    batch: Sequence[int] = option((1, 2), "sizes", "N,N", read=batch_sizes)
    out: str | Path | None = option(None, "a file", "FILE", read=Path)
    names: Sequence[str] = option((), "names", "NAME", repeats=True)
    fast: bool = option(False, "a switch")
    progress: bool | None = option(None, "a switch of three")
    inner: Inner = nested(Inner(), "inner")
    anything: Any = option(None, "an object", "X")


@study(Made)
def made(options: Made) -> Made:
    """Give the options back."""
    return options


NUMPY: Any = np.int64(3)
TYPED: Any = "0"
ALONE: Any = 4
"""Values that a type checker refuses, and a person gives."""


def test_values_are_read_as_they_are_typed() -> None:
    found = made(limit=NUMPY, share=1, few=TYPED, by="turn", batch=[8, 1], out="a/b", names="one", fast=True)
    assert (found.limit, found.share, found.few, found.by) == (3, 1.0, 0, "turn")
    assert (found.batch, found.out, found.names, found.fast) == ([8, 1], Path("a/b"), ("one",), True)
    thing = object()
    assert made(anything=thing, names=["a", "b"], progress=False).anything is thing
    assert made(batch=ALONE).batch == (4,)
    assert checked(Made()) == Made()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 0}, "limit: expected a whole number, at least 1; got '0'"),
        ({"limit": True}, "limit: expected a value, not a switch; got True"),
        ({"limit": 2.5}, "limit: expected a whole number"),
        ({"limit": "many"}, "limit: expected a whole number"),
        ({"few": 9}, "few: expected a whole number"),
        ({"few": None}, "few: expected a number; got None"),
        ({"share": float("nan")}, "share: "),
        ({"by": "datasets"}, "by: expected one of dataset, turn; got 'datasets'"),
        ({"batch": [1, 0]}, "batch: expected batch sizes such as 1,2,4,8; got '1,0'"),
        ({"fast": "no"}, "fast: expected True or False; got 'no'"),
        ({"progress": 1}, "progress: expected True or False; got 1"),
        ({"inner": Inner(steps=-1)}, "steps: expected a whole number"),
    ],
)
def test_what_no_reader_takes_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        made(**given)
    assert str(refusal.value).startswith(said)


@given(st.integers(-10, 20))
@settings(max_examples=examples(30))
def test_a_number_is_refused_where_its_text_is(value: int) -> None:
    try:
        expected: int | None = int(str(count(0, 8)(str(value))))
    except ValueError:
        expected = None
    if expected is None:
        with pytest.raises(UsageError):
            made(few=value)
    else:
        assert made(few=value).few == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: simlab.replay(limit=0),
        lambda: simlab.advise(batch=(0,)),
        lambda: simlab.compare("none.parquet", by="prompt"),
        lambda: simlab.report(texts=-1),
        lambda: simlab.scoring(nodes=0),
        lambda: simlab.export("vllm", "chain", draft_tokens=0),
    ],
)
def test_studies_refuse_before_they_begin(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="expected"):
        call()


def test_a_list_in_place_of_a_trace_says_where_policies_go() -> None:
    with pytest.raises(UsageError, match=r"got list; policies are given by name: policies=\[...\]"):
        simlab.advise(["chain"])  # type: ignore[arg-type]
    assert set(simlab.replay(["chain"], limit=1).frame["name"]) > {"chain"}  # type: ignore[arg-type]
