"""The wheel, built through a source archive as a publisher would: the five packages, their data, nothing twice."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from places import REPOSITORY

FOLDERS = {"simlab": "simlab"} | {name: f"simlab/{name}" for name in ("traces", "policies", "analysis", "real_runner")}


def shipped_files() -> set[str]:
    """What the wheel must hold: every module of the five packages, and every data file, by its installed name."""
    names = set()
    for folder, package in FOLDERS.items():
        modules = (
            path
            for path in (REPOSITORY / folder).rglob("*.py")
            if not (REPOSITORY / folder / path.relative_to(REPOSITORY / folder).parts[0]).is_symlink()
        )
        data = (path for path in (REPOSITORY / folder / "data").rglob("*") if path.is_file())
        names |= {f"{package}/{path.relative_to(REPOSITORY / folder).as_posix()}" for path in (*modules, *data)}
    return names


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel, built from a copy so that nothing stale gets in."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, copy)
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / folder, copy / folder, symlinks=True, ignore=ignored)
    (copy / "traces" / "data" / "deep").mkdir(parents=True)
    (copy / "traces" / "data" / "deep" / "planted.bin").write_bytes(b"x")
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
    assert held - {"simlab/py.typed"} == shipped_files() | {"simlab/traces/data/deep/planted.bin"}


def test_no_file_is_doubled(built: Path) -> None:
    assert [name for name, count in Counter(names_in_wheel(built)).items() if count > 1] == []


def test_wheel_carries_the_licence_and_the_command(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        (scripts,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert b"Apache License" in archive.read(licence)
        assert "simlab = simlab.cli.main:main" in archive.read(scripts).decode()


def test_source_archive_holds_each_file_once_under_its_real_folder(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [
        name for name in names if name.startswith(tuple(f"{link}/" for link in FOLDERS.values() if "/" in link))
    ] == []
    assert "traces/data/deep/planted.bin" in names
