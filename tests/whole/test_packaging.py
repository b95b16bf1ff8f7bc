"""The wheel, built through a source archive as a publisher would: the five packages, their data, nothing twice.

It is installed where nothing is but what it asks for, and used from there.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from depth import THOROUGH
from packaging.requirements import Requirement
from places import REPOSITORY

FOLDERS = {"simlab": "simlab"} | {name: f"simlab/{name}" for name in ("traces", "policies", "analysis", "real_runner")}

PLANTED = ("traces/data/deep/planted.bin", "simlab/data/deep/planted.txt")
"""Files that are added to the copy: whatever lies in a folder of data is shipped."""

USER = """import polars as pl

import simlab

table = simlab.replay(policies=["chain", "ddtree:budget=16"], limit=2)
frame: pl.DataFrame = table.frame
comparison = simlab.compare(table, "ddtree:budget=16", "chain")
print(frame.height, comparison.text())
"""

MISTAKEN = """import simlab

table = simlab.replay(policies=3)
table.no_such_name
simlab.compare(1.5)
"""


LARGE = 1 << 18
"""Bytes of files that a quick run packs empty: only their names are looked at, and packing takes a minute."""


def shipped_files() -> set[str]:
    """What the wheel must hold: every module of the five packages, and every data file, by its installed name."""
    names = set()
    for folder, package in FOLDERS.items():
        modules = (
            path
            for path in (REPOSITORY / folder).rglob("*.py")
            if not (REPOSITORY / folder / path.relative_to(REPOSITORY / folder).parts[0]).is_symlink()
        )
        # What a replay from this folder keeps decoded is no part of a trace.
        here = (REPOSITORY / folder / "data").rglob("*")
        data = (path for path in here if path.is_file() and ".decoded" not in path.parts)
        names |= {f"{package}/{path.relative_to(REPOSITORY / folder).as_posix()}" for path in (*modules, *data)}
    return names | {"simlab/py.typed"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel, built from a copy so that nothing stale gets in."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, copy)
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / folder, copy / folder, symlinks=True, ignore=ignored)
    for path in [] if THOROUGH else [path for path in copy.rglob("*") if path.stat().st_size > LARGE]:
        path.write_bytes(b"")
    for planted in PLANTED:
        (copy / planted).parent.mkdir(parents=True)
        (copy / planted).write_bytes(b"x")
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def names_in_wheel(built: Path) -> list[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_holds_every_module_and_data_file_and_nothing_else(built: Path) -> None:
    held = {name for name in names_in_wheel(built) if ".dist-info/" not in name}
    assert held == shipped_files() | {"simlab/traces/data/deep/planted.bin", "simlab/data/deep/planted.txt"}


@pytest.mark.parametrize("pattern", ["simlab/py.typed", "simlab/traces/data/schemas/*.schema.json"])
def test_wheel_holds(built: Path, pattern: str) -> None:
    assert any(Path(name).match(pattern) for name in names_in_wheel(built))


def test_no_file_is_doubled(built: Path) -> None:
    assert [name for name, count in Counter(names_in_wheel(built)).items() if count > 1] == []


def test_wheel_carries_the_licence_and_the_command(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        (scripts,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert b"Apache License" in archive.read(licence)
        assert "simlab = simlab.__main__:main" in archive.read(scripts).decode()


def test_source_archive_holds_each_file_once_where_it_is_imported_from(built: Path) -> None:
    """The links are followed: in an archive the four folders are packages inside ``simlab``, and nowhere else."""
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members if not member.isdir()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [
        name for name in names if name.startswith(tuple(f"{folder}/" for folder in FOLDERS if folder != "simlab"))
    ] == []
    assert shipped_files() | {"simlab/traces/data/deep/planted.bin", "simlab/data/deep/planted.txt"} <= set(names)
    assert not any(member.issym() or member.islnk() for member in members)


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment with the wheel and its dependencies, and an empty folder to work in."""

    root: Path
    work: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    def run(self, program: str, *arguments: str) -> str:
        """What one of its programs prints.

        Raises:
            AssertionError: it ended with another code than 0.
        """
        done = run([self.root / "bin" / program, *arguments], self.work)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with no path to the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=200, cwd=folder, env=environment
    )


def needed_distributions(name: str, *, itself: bool = False) -> set[str]:
    """Names of the distributions that one needs without any extra, and those that they need."""
    asked = map(Requirement, distribution(name).requires or ())
    needed = [
        requirement.name
        for requirement in asked
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    return set().union(*(needed_distributions(one, itself=True) for one in needed), {name} if itself else ())


def link_distributions(names: set[str], folder: Path) -> None:
    """Links to the installed files of some distributions, so that a folder of packages holds them and nothing else."""
    for name in names:
        held = distribution(name)
        tops = {path.parts[0] for path in held.files or () if path.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(held.locate_file(top))))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which the wheel was installed; what it needs is linked from the one that runs the tests."""
    root, work = tmp_path_factory.mktemp("fresh"), tmp_path_factory.mktemp("work")
    made = run([sys.executable, "-m", "venv", "--without-pip", root], work)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = built.glob("*.whl")
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        root / "bin" / "python",
    ]
    done = run([*install, "install", "--quiet", "--no-deps", "--no-index", wheel], work)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = root.glob("lib/python*/site-packages")
    link_distributions(needed_distributions("simlab"), packages)
    return Environment(root, work)


@pytest.mark.thorough
def test_wheel_from_the_source_archive_replays(installed: Environment) -> None:
    asked = "import simlab, importlib.metadata as m; print(simlab.__file__, m.distribution('simlab').locate_file('.'))"
    places = installed.run("python", "-c", asked).split()
    assert all(Path(one).is_relative_to(installed.root) for one in places)
    rows = json.loads(installed.run("simlab", "replay", "--limit", "2", "-p", "chain", "--json"))["rows"]
    assert [row["policy"] for row in rows][:2] == ["autoregressive", "chain"]
    (installed.work / "user.py").write_text(USER, encoding="utf-8")
    assert "ddtree:budget=16" in installed.run("python", "user.py")


@pytest.mark.thorough
def test_a_users_program_is_checked_against_the_wheel(installed: Environment) -> None:
    folder = installed.work / "checked"
    folder.mkdir()
    (folder / "user.py").write_text(USER, encoding="utf-8")
    (folder / "mistaken.py").write_text(MISTAKEN, encoding="utf-8")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        folder / "cache",
    ]
    done = run([*command, "--python-executable", installed.python, "user.py", "mistaken.py"], folder)
    lines = done.stdout.splitlines()
    assert [line.partition(": error:")[0] for line in lines if ": error:" in line] == [
        "mistaken.py:3",
        "mistaken.py:4",
        "mistaken.py:5",
    ], done.stdout + done.stderr
    for code, line in zip(("arg-type", "attr-defined", "arg-type"), lines, strict=True):
        assert f"[{code}]" in line


@pytest.mark.thorough
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest numba has no wheel for this Python")
def test_the_oldest_versions_that_are_allowed_run(built: Path, tmp_path: Path) -> None:
    """A report compiles most kernels and asks polars for most of what simlab asks."""
    asked = [Requirement(one) for one in distribution("simlab").requires or ()]
    oldest = [str(one).replace(">=", "==") for one in asked if one.marker is None]
    (wheel,) = built.glob("*.whl")
    environment = Environment(tmp_path / "oldest", tmp_path)
    made = run([sys.executable, "-m", "venv", environment.root], tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    done = run([environment.python, "-m", "pip", "install", "--quiet", *oldest, wheel], tmp_path)
    if done.returncode:
        pytest.skip(f"the oldest versions cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    environment.run("simlab", "report", "--limit", "2", "--out", str(tmp_path / "report.html"))
    for policy in ("taps", "d2sd", "jetspec", "self"):
        environment.run("simlab", "replay", "--limit", "2", "-p", policy)
