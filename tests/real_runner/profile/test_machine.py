"""What a measurement says of the machine."""

import platform
import subprocess
from pathlib import Path

import pytest

from simlab.real_runner.profile import machine


def test_the_cpu_is_named_as_linux_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Fast  CPU 9000 @ 3 GHz\n\nmodel name\t: another\n")
    monkeypatch.setattr(machine, "_CPUINFO", info)
    assert machine.cpu_name() == machine.hardware_name("cpu") == "Fast CPU 9000 @ 3 GHz"


@pytest.mark.parametrize(("processor", "named"), [("arm", "arm"), ("", "arm64")])
def test_without_cpuinfo_the_architecture_names_it(
    processor: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.cpu_name() == named
    assert machine.system_name() == "Windows arm64"


def test_macos_is_asked_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    asked: list[list[str]] = []

    def run(command: list[str], **_settings: object) -> object:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="Apple M9\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert machine.cpu_name() == "Apple M9"
    assert asked[0][1:] == ["-n", "machdep.cpu.brand_string"]
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_s: (_ for _ in ()).throw(OSError()))
    assert machine.cpu_name() == (platform.processor() or platform.machine())
