"""Numbers as they are typed: one reading of them, whatever they are of."""

import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab import limits
from simlab.errors import TooLargeError, UsageError
from simlab.limits import (
    GIB,
    MAX_GIB,
    MOST_COUNT,
    MOST_SEED,
    check_memory,
    finite_number,
    is_whole,
    most_bytes,
    whole_number,
)


@given(st.integers(-MOST_COUNT, MOST_COUNT))
def test_what_python_prints_is_read(value: int) -> None:
    assert whole_number(str(value)) == value


@given(st.text(st.sampled_from("0123456789-+_ ٣３.eE"), max_size=8))
def test_all_else_is_refused(text: str) -> None:
    plain = is_whole(text)
    assert plain == (
        text == "0" or (text.isascii() and text.removeprefix("-").isdigit() and text.lstrip("-")[0] != "0")
    )
    if not plain:
        with pytest.raises(ValueError, match="expected a whole number"):
            whole_number(text)


@pytest.mark.parametrize(
    "text", ["٣", "３", "1_000", "+5", " 5", "5 ", "012", "-0", "00", "1e3", "1.0", "", "-", "x", "²"]
)
def test_digits_are_plain(text: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number, at least 1; got "):
        whole_number(text, 1)


@pytest.mark.parametrize(
    ("text", "least", "most", "said"),
    [
        ("0", 1, MOST_COUNT, "expected a whole number, at least 1; got '0'"),
        ("-1", 0, MOST_COUNT, "expected a whole number, at least 0; got '-1'"),
        ("2147483648", 1, MOST_COUNT, "expected a whole number up to 2,147,483,647; got '2147483648'"),
        (
            str(2**63),
            0,
            MOST_SEED,
            "expected a whole number up to 9,223,372,036,854,775,807; got '9223372036854775808'",
        ),
        ("9" * 400, 1, 10, f"expected a whole number up to 10; got '{'9' * 40}'... (400 characters)"),
        ("9" * 5000, 1, 10, f"expected a whole number up to 10; got '{'9' * 40}'... (5,000 characters)"),
        ("-" + "9" * 5000, 1, 10, f"expected a whole number, at least 1; got '-{'9' * 39}'... (5,001 characters)"),
        (
            "x" * 50,
            -MOST_COUNT,
            9,
            f"expected a whole number from -2,147,483,647 to 9; got '{'x' * 40}'... (50 characters)",
        ),
    ],
)
def test_the_sentence_says_what_would_do(text: str, least: int, most: int, said: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole sentence is compared
        whole_number(text, least, most)
    assert str(refused.value) == said


def test_the_ends_will_do() -> None:
    assert whole_number(str(MOST_SEED), 0, MOST_SEED) == 2**63 - 1
    assert [whole_number(text, 1, 3) for text in ("1", "3")] == [1, 3]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_are_read(value: float) -> None:
    assert finite_number(repr(value)) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "9" * 400, "9" * 5000, "1_0", "٣", "３.5", "x", ""])
def test_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number; got "):
        finite_number(text)
    assert math.isfinite(finite_number("1e308"))


# What would not fit into memory is refused before it is made, with the limit and how to raise it


def test_the_variable_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_GIB, "0.5")
    assert most_bytes() == GIB // 2
    check_memory(GIB // 2, "nothing")
    with pytest.raises(TooLargeError) as refused:
        check_memory(3 * GIB, "the grid", "take fewer cells")
    assert str(refused.value) == (
        "the grid would take 3.0 GiB of memory, and simlab takes at most 0.5 GiB for one thing here; take fewer cells, "
        "or set the environment variable SIMLAB_MAX_GIB to a larger number of GiB"
    )


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "much", "1 GiB"])
def test_what_is_no_limit_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(MAX_GIB, text)
    with pytest.raises(UsageError, match="SIMLAB_MAX_GIB should be a number of GiB above 0; got"):
        most_bytes()


def test_without_it_half_of_the_memory_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(MAX_GIB, raising=False)
    container = tmp_path / "memory.max"
    container.write_text(f"{GIB}\n")
    monkeypatch.setattr(limits, "_CGROUPS", (str(tmp_path / "none"), str(container)))
    limits._available_bytes.cache_clear()
    assert most_bytes() == GIB // 2
    container.write_text("max\n")
    limits._available_bytes.cache_clear()
    assert most_bytes() > 0
    limits._available_bytes.cache_clear()


def test_what_the_shell_allows_counts() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2 * GIB}, {hard}));"
        "from simlab.limits import most_bytes; print(most_bytes())"
    )
    others = {name: value for name, value in os.environ.items() if name != MAX_GIB}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=others)
    assert int(run.stdout) <= GIB
    assert resource.getrlimit(resource.RLIMIT_AS) == (soft, hard)
