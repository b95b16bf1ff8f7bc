"""Operations of torch that are watched while they run."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Seen = Callable[[str, tuple[Any, ...], list[torch.Tensor]], None]
"""Is told an operation's name, what it was given, and the tensors that it gave back."""


class Watched(TorchDispatchMode):
    """While this is entered, every operation is told of."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        given = func(*args, **(kwargs or {}))
        made = given if isinstance(given, list | tuple) else (given,)
        self._seen(str(func).split(".")[1], args, [one for one in made if isinstance(one, torch.Tensor)])
        return given
