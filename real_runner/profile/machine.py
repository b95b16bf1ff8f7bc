"""What a measurement says of the machine it was made on: hardware and libraries, never names of hosts or people."""

import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

from simlab.draft import Prompt
from simlab.ids import versions_of
from simlab.real_runner.decoding.plain import PlainDecoding, clock_of
from simlab.real_runner.models import load_only_target
from simlab.sampling.choice import Sampling

# How fast a machine decodes right now, by a handful of tokens: to say beforehand how long something takes.


_TOKENS, _WARM_UP, _CONTEXT = 16, 4, 128


def plain_token_seconds(target: str, dtype: str, device: str) -> float:
    """Seconds of a token of plain decoding, the median of a few; a guide to durations and no measurement.

    Args:
        target: a name, folder or Hub id.
        dtype: of its arithmetic.
        device: as torch names it.
    """
    loaded = load_only_target(target, dtype, device)
    prompt = Prompt("0", "probe", 0, 0, np.arange(_CONTEXT, dtype=np.int32) % loaded.vocab_size)
    greedy = Sampling(temperature=0.0, top_k=0, top_p=1.0, seed=0)
    text = PlainDecoding(loaded, prompt, greedy, _TOKENS + _WARM_UP + 2, clock_of(loaded.device))
    seconds = [text.step() for _ in range(_TOKENS + _WARM_UP)]
    return float(np.median(seconds[_WARM_UP:]))


LIBRARIES = ("torch", "transformers", "numpy", "numba")
"""Libraries whose version can change how long a stage takes."""

_CPUINFO = Path("/proc/cpuinfo")


def hardware_name(device: str) -> str:
    """The name of the GPU that a torch device stands for, or else of the CPU."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_name()


def machine_of(device: str, placement: str) -> str:
    """The name of the device and, where a target is spread over several, how it is."""
    return f"{hardware_name(device)} ({placement})" if placement else hardware_name(device)


def cpu_name() -> str:
    """The CPU by its model name where the system tells it, else by its architecture."""
    name = _cpu_of_linux() or _cpu_of_macos() or platform.processor() or platform.machine()
    return " ".join(name.split()) or "unknown CPU"


def system_name() -> str:
    """Operating system and architecture, such as ``Linux x86_64``."""
    return f"{platform.system()} {platform.machine()}".strip()


def library_versions() -> dict[str, str]:
    """The versions of `LIBRARIES`."""
    return versions_of(LIBRARIES)


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere float32 is the faster dtype."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _cpu_of_linux() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == "model name"), "")


def _cpu_of_macos() -> str:
    if platform.system() != "Darwin":
        return ""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
