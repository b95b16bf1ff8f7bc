"""What each value of ``--execution`` does to loaded models."""

from simlab.errors import ModelError
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.compiled_layers import compile_models
from simlab.real_runner.execution.executions import COMPILED, CUDA_GRAPHS, check_execution
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.targets.model import Target


def prepare(target: Target, drafter: DFlashDrafter, execution: str) -> GraphedModels | None:
    """Make models run as they are to be executed; these models stay so, others are as they were.

    Returns:
        What holds captured passes, where they are captured.
    """
    try:
        check_execution(execution, 1, target.device.type)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if execution == COMPILED:
        compile_models(target, drafter)
    if execution == CUDA_GRAPHS:
        return GraphedModels(target, drafter)
    return None
