"""How the models' operations are started: the values of ``--execution``, and what each does to loaded models.

Nothing here imports torch before models are prepared, so that the command line can list the values.
"""

from typing import TYPE_CHECKING

from simlab.errors import ModelError

if TYPE_CHECKING:
    from simlab.real_runner.drafters.dflash import DFlashDrafter
    from simlab.real_runner.execution.graph_models import GraphedModels
    from simlab.real_runner.targets.model import Target

EAGER, COMPILED, CUDA_GRAPHS = "eager", "compiled", "cuda_graphs"

EXECUTIONS = {
    EAGER: "one operation after the other",
    COMPILED: "torch.compile fuses those between two attentions, which takes a minute first and a C++ compiler",
    CUDA_GRAPHS: "on a GPU, passes of fixed sizes are captured once and replayed, a wait for the device each round",
}
"""Each value, and what it means in words."""


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

    Raises:
        ValueError: it is none of `EXECUTIONS`, or captures passes of one text on a GPU.
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


def prepare(target: "Target", drafter: "DFlashDrafter", execution: str) -> "GraphedModels | None":
    """Make models run as they are to be executed; these models stay so, others are as they were.

    Returns:
        What holds captured passes, where they are captured.

    Raises:
        ModelError: there is no such execution, or these models or this machine do not allow it.
    """
    try:
        check_execution(execution, 1, target.device.type)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if execution == COMPILED:
        from simlab.real_runner.execution.compiled_layers import compile_models

        compile_models(target, drafter)
    if execution == CUDA_GRAPHS:
        from simlab.real_runner.execution.graph_models import GraphedModels

        return GraphedModels(target, drafter)
    return None
