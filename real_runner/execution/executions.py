"""How the models' operations are started, and where: the values of ``--execution`` and ``--device-map``.

Nothing here imports torch, so that the command line can list the values.
"""

from collections.abc import Mapping

# The sizes of passes that are captured once and replayed: a tree or a context takes the next larger one.
#
# A CUDA graph does the same work each time, so a pass of 17 nodes runs as one of 24. Steps are small where trees are
# small, since a pass costs what its size costs.


_ROW_STEPS = ((128, 8), (512, 32))
_CONTEXT_STEPS = ((2048, 256), (8192, 1024))
_LAST_ROW_STEP, _LAST_CONTEXT_STEP = 128, 4096


def rows_for(num_nodes: int) -> int:
    """Rows of the target's pass over a tree, its root counted.

    >>> [rows_for(num_nodes) for num_nodes in (1, 2, 8, 9, 17, 129, 513)]
    [1, 8, 8, 16, 24, 160, 640]
    """
    return 1 if num_nodes <= 1 else _next(num_nodes, _ROW_STEPS, _LAST_ROW_STEP)


def context_for(length: int) -> int:
    """Tokens that a pass attends to, those that it masks counted.

    >>> [context_for(length) for length in (1, 256, 257, 2049)]
    [256, 256, 512, 3072]
    """
    return _next(max(length, 1), _CONTEXT_STEPS, _LAST_CONTEXT_STEP)


def node_counts_at_steps(most: int) -> tuple[int, ...]:
    """Numbers of drafted tokens at both ends of each size, where prices step; 0 and ``most`` among them.

    >>> node_counts_at_steps(20)
    (0, 1, 7, 8, 15, 16, 20)
    """
    ends = {drafted for drafted in range(most) if rows_for(drafted + 1) != rows_for(drafted + 2)}
    return tuple(sorted({0, most} | ends | {end + 1 for end in ends}))


def _next(number: int, steps: tuple[tuple[int, int], ...], last: int) -> int:
    step = next((step for up_to, step in steps if number <= up_to), last)
    return -(-number // step) * step


EAGER, COMPILED, CUDA_GRAPHS = "eager", "compiled", "cuda_graphs"

EXECUTIONS = {
    EAGER: "one operation after the other",
    COMPILED: "torch.compile fuses those between two attentions, which takes a minute first and a C++ compiler",
    CUDA_GRAPHS: "on a GPU, passes of fused layers and of fixed sizes are captured once and replayed",
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
            f"--execution {CUDA_GRAPHS} captures passes of one text at a time, and --batch is {batch}: each text of a "
            "batch has a tree and a context of another size, and every combination would be captured; leave one out"
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
