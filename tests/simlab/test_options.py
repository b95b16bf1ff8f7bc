"""Options in Python: what the command line's reader refuses is refused, and a value alone stands for a list."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import simlab
from simlab.errors import UsageError
from simlab.options import Option, batch_sizes, checked, count, declared, nested, option, study


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
    name: str | None = option(None, "a name", "NAME")
    table: str | Path | None = option(None, "a file", "FILE", example="a.parquet")
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
FOLDER: Any = Path("a/b")
"""Values that a type checker refuses, and a person gives."""


def test_values_are_read_as_they_are_typed() -> None:
    found = made(limit=NUMPY, share=1, few=TYPED, by="turn", batch=[8, 1], out="a/b", names="one", fast=True)
    assert (found.limit, found.share, found.few, found.by) == (3, 1.0, 0, "turn")
    assert (found.batch, found.out, found.names, found.fast) == ((1, 8), Path("a/b"), ("one",), True)
    assert made(name=FOLDER).name == "a/b"
    thing = object()
    assert made(anything=thing, names=["a", "b"], progress=False).anything is thing
    assert made(batch=ALONE).batch == (4,)
    assert checked(Made, {}) == Made()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 0}, "limit: expected a whole number, at least 1; got '0'"),
        ({"limit": True}, "limit: expected a value, not a switch; got True"),
        ({"limit": 2.5}, "limit: expected a whole number"),
        ({"limit": "many"}, "limit: expected a whole number"),
        ({"few": 9}, "few: expected a whole number"),
        ({"few": None}, "few: expected int; got None"),
        ({"limit": [3]}, "limit: expected int; got [3]"),
        ({"by": 3}, "by: expected one of dataset, turn; got 3"),
        ({"name": 3}, "name: expected str; got 3"),
        ({"name": "a\0b"}, r"name: expected a text without null characters; got 'a\x00b'"),
        ({"batch": []}, "batch: expected batch sizes such as 1,2,4,8; got ''"),
        ({"batch": [1, "x"]}, "batch: expected batch sizes such as 1,2,4,8; got '1,x'"),
        ({"batch": None}, "batch: expected Sequence or int; got None"),
        ({"names": ["a", ["b"]]}, "names: expected str; got ['b']"),
        ({"names": {"a": 1}}, "names: expected str; got {'a': 1}"),
        ({"out": {1}}, "out: expected Path or str; got {1}"),
        ({"table": Path(__file__).parent}, "--table names the folder"),
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


def test_a_list_in_the_first_place_is_one_of_policies() -> None:
    assert set(simlab.replay(["chain"], limit=1).frame["name"]) > {"chain"}  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"trace: expected Path or Trace or str; got \['chain'\]"):
        simlab.engine_rules(["chain"])  # type: ignore[arg-type]


def test_an_argument_that_is_not_there_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"^replay\(\) has no argument 'policy'; did you mean `policies`\?$"):
        simlab.replay(policy="chain")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^replay\(\): too many positional arguments$"):
        simlab.replay(None, "chain", "prices")  # type: ignore[call-arg]


STUDIES = [name for name in simlab.__all__ if isinstance(getattr(getattr(simlab, name), "options", None), type)]
NOTHING_LIKE_IT = (object(), 1j, b"a", {1}, [object()], print)


@pytest.mark.parametrize("name", STUDIES)
def test_what_an_option_of_no_study_can_be_is_refused_before_the_work(name: str) -> None:
    """Each option of each study but policies, which are whatever can be one."""
    kind = getattr(simlab, name).options
    needed = {field.name: "x" for field, _ in declared(kind) if field.default is MISSING}
    for field, typed in declared(kind):
        for value in NOTHING_LIKE_IT if isinstance(typed, Option) and "Policy" not in str(field.type) else ():
            with pytest.raises(ValueError, match=rf"^{field.name}: expected .*"):
                checked(kind, {**needed, field.name: value})
