"""Captured passes rehearsed on a CPU: each piece of work is run as it is, and watched for what no CUDA graph can do.

A graph repeats launches on the same memory. So work may not wait for the device, nor take memory from the host, and
all that it reads beside its inputs must lie where it lay when the work was first done.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.captured_work import CapturedGraphs
from simlab.real_runner.execution.fused_layers import Adapter
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.models import Models

WAITS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "lift_fresh",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "repeat_interleave.Tensor",
    "is_nonzero",
    "equal.default",
)
"""Operations with which the host waits for numbers of the device, or brings its own."""


class CannotBeCapturedError(AssertionError):
    """Work that no CUDA graph repeats."""


class _Watch(TorchDispatchMode):
    """Sees the operations of a piece of work, and what these read that the work did not make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, Tensor] = {}
        self.read: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = str(func)
        if any(f".{wait}" in f".{name.removeprefix('aten.')}" for wait in WAITS):
            raise CannotBeCapturedError(f"{name} waits for the device, or takes memory from the host")
        given = [one for one in tree_leaves((args, kwargs or {})) if isinstance(one, Tensor)]
        chosen = tree_leaves(args[1]) if name in ("aten.index.Tensor", "aten.index_put_.default") else []
        if any(isinstance(one, Tensor) and one.dtype == torch.bool for one in chosen):
            raise CannotBeCapturedError(f"{name} by a mask waits for the device")
        self.read += [one for one in given if self._place(one) not in self._made]
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, Tensor) and self._place(one) not in {self._place(other) for other in self.read}:
                self._made[self._place(one)] = one
        return found

    @staticmethod
    def _place(one: Tensor) -> int:
        return one.untyped_storage().data_ptr()


class WatchedGraphs(CapturedGraphs):
    """Work that is run as it is, and refused where it could not be captured."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._places: dict[Hashable, list[tuple[int, int]]] = {}
        self._kept: list[Tensor] = []
        self.num_repeated = 0

    def run(self, key: Hashable, work: Callable[[], None], changed: Sequence[Tensor] = ()) -> None:
        if key not in self._places:
            # A warm-up, which may take memory that stays.
            before = [one.clone() for one in changed]
            super().run(key, work, changed)
            for one, was in zip(changed, before, strict=True):
                one.copy_(was)
        with _Watch() as watch:
            super().run(key, work, changed)
        # A number of the host, such as a scale, is part of a launch.
        read = [one for one in watch.read if one.dim() > 0 and one.numel() > 0]
        places = [(one.data_ptr(), one.numel()) for one in read]
        if key not in self._places:
            self._places[key] = places
            # Memory that is kept is given to nobody else, so that an address is one piece of memory.
            self._kept += read
        elif self._places[key] != places:
            raise CannotBeCapturedError(f"the work of {key} reads at other places than when it was first done")
        else:
            self.num_repeated += 1

    def forget(self) -> None:
        super().forget()
        self._places.clear()


def captured(models: Models) -> Models:
    """Models with captured passes, as `load_models` has them."""
    drafter = models.drafter
    of_blocks = drafter if isinstance(drafter, DFlashDrafter) else None
    graphs = GraphedModels(models.target, of_blocks, adapter=drafter if isinstance(drafter, Adapter) else None)
    return replace(models, graphs=graphs)


def rehearsed(models: Models, is_fused: bool = True) -> Models:
    """Models whose passes are those that are captured on a GPU, watched; else of the models' own modules."""
    found = captured(models)
    assert found.graphs is not None
    found.graphs.graphs = WatchedGraphs(models.target.device)
    if not is_fused:
        unfuse(found)
    return found


def unfuse(models: Models) -> None:
    """Have passes of the models' own modules captured, as where layers are of a kind that is not known."""
    assert models.graphs is not None
    fused, others = models.graphs.fused, [getattr(one, "drafter", None) for one in models.channels.values()]
    fused.target = None
    fused._drafters = {one: None for one in (models.drafter, *others) if isinstance(one, DFlashDrafter)}


def on_device(models: Models, device: str) -> Models:
    """A copy of models and of what makes their channels, on another device."""
    moved = deepcopy(models)
    for one in (moved, moved.target, *moved.channels.values()):
        # Producers are frozen, with slots.
        for name in one.__dataclass_fields__:  # type: ignore[union-attr]
            value = getattr(one, name)
            if isinstance(value, torch.nn.Module):
                value.to(device)
    return moved


def num_repeated(models: Models) -> int:
    """How often such models have repeated a piece of work."""
    assert models.graphs is not None
    assert isinstance(models.graphs.graphs, WatchedGraphs)
    return models.graphs.graphs.num_repeated
