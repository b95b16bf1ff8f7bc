"""What would not fit into memory is refused before it is made, with the limit and how to raise it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from simlab.errors import TooLargeError, UsageError
from simlab.limits import memory
from simlab.limits.memory import GIB, MAX_GIB, check_memory, most_bytes


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
    monkeypatch.setattr(memory, "_CGROUPS", (str(tmp_path / "none"), str(container)))
    memory._available_bytes.cache_clear()
    assert most_bytes() == GIB // 2
    container.write_text("max\n")
    memory._available_bytes.cache_clear()
    assert most_bytes() > 0
    memory._available_bytes.cache_clear()


def test_what_the_shell_allows_counts() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2 * GIB}, {hard}));"
        "from simlab.limits.memory import most_bytes; print(most_bytes())"
    )
    others = {name: value for name, value in os.environ.items() if name != MAX_GIB}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=others)
    assert int(run.stdout) <= GIB
    assert resource.getrlimit(resource.RLIMIT_AS) == (soft, hard)
