"""How the models' operations are started: the values of ``--execution``, and what each does to loaded models.

Nothing here imports torch before models are prepared, so that the command line can list the values.
"""

from typing import TYPE_CHECKING

from simlab.errors import ModelError

if TYPE_CHECKING:
    from simlab.real_runner.dflash import DFlashDrafter
    from simlab.real_runner.target import Target

EAGER, COMPILED = "eager", "compiled"

EXECUTIONS = {
    EAGER: "one operation after the other",
    COMPILED: "torch.compile fuses those between two attentions, which takes a minute first and a C++ compiler",
}
"""Each value, and what it means in words."""


def execution_help() -> str:
    """All values in a line, for the help of an option."""
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in EXECUTIONS.items())
    return f"how the models' operations are started. {listed} (default {EAGER})"


def check_execution(name: str) -> None:
    """Refuse a value that is not in the list.

    Raises:
        ValueError: it is none of `EXECUTIONS`.
    """
    if name not in EXECUTIONS:
        raise ValueError(f"execution must be one of {', '.join(EXECUTIONS)}; got {name!r}")


def prepare(target: "Target", drafter: "DFlashDrafter", execution: str) -> None:
    """Make models run as they are to be executed, and run them once; these models stay so, others are as they were.

    Raises:
        ModelError: there is no such execution, or these models or this machine do not allow it.
    """
    try:
        check_execution(execution)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if execution == COMPILED:
        from simlab.real_runner.compiled_layers import compile_models

        compile_models(target, drafter)
