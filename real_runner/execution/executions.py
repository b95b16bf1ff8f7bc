"""How the models' operations are started, and where: the values of ``--execution`` and ``--device-map``.

Nothing here imports torch, so that the command line can list the values.
"""

from collections.abc import Mapping

EAGER, COMPILED, CUDA_GRAPHS = "eager", "compiled", "cuda_graphs"

EXECUTIONS = {
    EAGER: "one operation after the other",
    COMPILED: "torch.compile fuses those between two attentions, which takes a minute first and a C++ compiler",
    CUDA_GRAPHS: "on a GPU, passes of fixed sizes are captured once and replayed, a wait for the device each round",
}
"""Each value, and what it means in words."""


AUTO = "auto"
"""Of ``--device-map``: the target spread over all GPUs and, where these are full, the machine's memory."""


def execution_help() -> str:
    """All values in a line, for the help of an option."""
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in EXECUTIONS.items())
    return f"how the models' operations are started. {listed} (default {EAGER})"


def check_execution(name: str, batch: int, device: str) -> None:
    """Refuse a value that is not in the list, or not for so many texts at a time or such a device.

    Args:
        name: the value.
        batch: texts at a time.
        device: as torch names it, such as ``cuda:1``.
    """
    if name not in EXECUTIONS:
        raise ValueError(f"execution must be one of {', '.join(EXECUTIONS)}; got {name!r}")
    if name == CUDA_GRAPHS and batch != 1:
        raise ValueError(
            f"--execution {CUDA_GRAPHS} captures passes of one text at a time, and --batch is {batch}; leave one out"
        )
    if name == CUDA_GRAPHS and device.partition(":")[0] != "cuda":
        raise ValueError(
            f"--execution {CUDA_GRAPHS} needs a GPU, and the device is {device}; give --device cuda, or "
            f"--execution {EAGER}"
        )


def check_device_map(device_map: str | None, others: Mapping[str, bool]) -> None:
    """Refuse what reads weights, or places rows, in a way that knows one device only.

    Args:
        device_map: None: the target is on one device, and nothing is refused.
        others: options, as they are typed, and whether each was asked for.
    """
    asked = [name for name, is_asked in others.items() if is_asked]
    if device_map not in (None, AUTO):
        raise ValueError(f"device_map must be {AUTO!r}; got {device_map!r}")
    if device_map is not None and asked:
        raise ValueError(
            f"--device-map spreads the target over devices, which does not go with {' and '.join(asked)}; leave one out"
        )
