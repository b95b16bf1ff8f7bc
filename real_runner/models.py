"""A target and a drafter that fit each other."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch

from simlab.errors import ModelError
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.masked import OwnDrafter
from simlab.real_runner.checkpoints.contents import config_file, read_fields
from simlab.real_runner.checkpoints.files import find_drafter, load_drafter
from simlab.real_runner.checkpoints.networks.adapter import is_adapter
from simlab.real_runner.checkpoints.networks.adapter_files import load_adapter
from simlab.real_runner.checkpoints.networks.eagle3 import is_eagle3
from simlab.real_runner.checkpoints.networks.eagle3_files import load_eagle3
from simlab.real_runner.drafters.config import check_sizes
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.compiled_layers import prepare
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.heads.eagle3.head import Eagle3Head, check_head
from simlab.real_runner.heads.producer import AnyProducer
from simlab.real_runner.targets.dumped_states import DumpedStates
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.placement import DeviceMap

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SMALLER = "give a smaller --batch-size, or --dtype bfloat16"
_NO_MEMORY = ("out of memory", "can't allocate memory")


AnyDrafter: TypeAlias = DFlashDrafter | Eagle3Head | GatedAdapter
"""What a draft set is recorded from: a drafter of blocks, a head that drafts a chain token by token, or an adapter with
which the target drafts for itself."""


@dataclass(frozen=True, slots=True)
class Models:
    """Both models, loaded, and where the drafter's files lie.

    ``dumped``: hidden states in place of the target's layers, which are then not loaded. ``fixed_rows``: so many
    rows has every pass that decides a token, see `simlab.real_runner.attention.batch_invariant`; 0: as many as there
    are tokens. ``execution``: one of `simlab.real_runner.execution.executions.EXECUTIONS`, as which both already run.
    ``graphs``: captured passes, which decoding then uses. ``channels``: what makes the channels that policies read, by
    the channels' names.
    """

    target: Target
    drafter: AnyDrafter
    draft_folder: Path
    draft_revision: str
    dumped: DumpedStates | None = None
    fixed_rows: int = 0
    execution: str = EAGER
    graphs: GraphedModels | None = None
    channels: Mapping[str, AnyProducer] = field(default_factory=dict)

    @property
    def block_drafter(self) -> DFlashDrafter:
        """The drafter, for what goes on from a pass of blocks."""
        if isinstance(self.drafter, DFlashDrafter):
            return self.drafter
        what = (
            "an EAGLE-3 head, which drafts token by token"
            if isinstance(self.drafter, Eagle3Head)
            else "an adapter, with which the target drafts in its own passes"
        )
        raise ModelError(
            f"the drafter here is {what}: one text at a time, eagerly, and no network goes on from its pass; leave "
            "--batch, --execution, --tap-offset and such channels out, or give a DFlash drafter"
        )

    @property
    def first_stage(self) -> DFlashDrafter | OwnDrafter:
        """What a first-order head goes on from: the drafter's pass, or the target's own masks."""
        return OwnDrafter(self.drafter, self.target) if isinstance(self.drafter, GatedAdapter) else self.block_drafter


def load_models(
    target: str,
    draft: str,
    dtype: str,
    device: str,
    tap_offset: int | None = None,
    execution: str = EAGER,
    device_map: DeviceMap | None = None,
    block: int | None = None,
) -> Models:
    """Load both models and see that they fit.

    Args:
        target: a name, folder or hub id.
        draft: likewise, or a file with weights beside its ``config.json``.
        dtype: of both.
        device: as torch names it.
        tap_offset: what to add to the drafter's layer numbers; None: as its format has it.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        device_map: where the parts of the target are, in place of ``device``; the drafter is where it begins.
        block: slots of the drafter's block, the root's counted; None: as the checkpoint has it.

    Raises:
        ModelError: they cannot be loaded, the drafter belongs to another target, or they cannot be executed so.
    """
    kind = _settled(dtype, device, device_map)
    files = find_drafter(draft)
    if is_adapter(read_fields(config_file(files.folder))):
        _check_adapted(tap_offset, execution, device_map)
        loaded = load_target(target, kind, device)
        adapter = load_adapter(files.folder, loaded)
        adapter.config = adapter.config if block is None else adapter.config.with_block(block)
        return Models(loaded, adapter, draft_folder=files.folder, draft_revision=files.revision)
    drafter = load_any_drafter(files.folder, kind, device, tap_offset, block)
    if isinstance(drafter, Eagle3Head) and execution != EAGER:
        raise ModelError(
            f"an EAGLE-3 head runs eagerly, one pass a token; leave --execution {execution} out, or give a DFlash "
            "drafter"
        )
    loaded = load_target(target, kind, device, device_map)
    check_fit(loaded, drafter)
    drafter.to(loaded.device)
    graphs = None if isinstance(drafter, Eagle3Head) else prepare(loaded, drafter, execution)
    return Models(
        target=loaded,
        drafter=drafter,
        draft_folder=files.folder,
        draft_revision=files.revision,
        execution=execution,
        graphs=graphs,
    )


def _check_adapted(tap_offset: int | None, execution: str, device_map: DeviceMap | None) -> None:
    """Refuse what a target that drafts for itself has not."""
    others = {"--tap-offset": tap_offset is not None, "--device-map": device_map is not None}
    others[f"--execution {execution}"] = execution != EAGER
    if given := [name for name, is_given in others.items() if is_given]:
        raise ModelError(
            "an adapter changes products of the target where they are, in eager passes, and taps no layer; leave "
            f"{' and '.join(given)} out, or give a DFlash drafter"
        )


def load_any_drafter(
    folder: Path, dtype: torch.dtype, device: str, tap_offset: int | None, block: int | None
) -> DFlashDrafter | Eagle3Head:
    """Read a drafter of its own; arguments as of `load_models`.

    Raises:
        ModelError: the checkpoint cannot be loaded, or is a network beside a drafter; or a tap offset was given for a
            head that has none.
    """
    drafter: DFlashDrafter | Eagle3Head
    if is_eagle3(read_fields(config_file(folder))):
        if tap_offset is not None:
            raise ModelError("an EAGLE-3 head numbers the target's layers in one way; leave --tap-offset out")
        drafter = load_eagle3(folder, dtype, device)
        drafter.config = drafter.config if block is None else drafter.config.with_block(block)
        return drafter
    drafter = load_drafter(folder, dtype, device, tap_offset)
    drafter.config = drafter.config if block is None else drafter.config.with_block(block)
    return drafter


def load_target_alone(target: str, dtype: str, device: str, device_map: DeviceMap | None = None) -> Target:
    """Load a target, for what needs no drafter; arguments as of `load_models`.

    Raises:
        ModelError: it cannot be loaded.
    """
    return load_target(target, _settled(dtype, device, device_map), device, device_map)


def _settled(dtype: str, device: str, device_map: DeviceMap | None) -> torch.dtype:
    """The dtype, and the device made ready."""
    kind = dtype_of(dtype)
    check_device(device)
    if device_map is not None and torch.cuda.is_available() and torch.device(device).type != "cuda":
        raise ModelError(f"--device-map spreads the target over GPUs, and --device is {device}; give --device cuda")
    settle_device(device)
    return kind


@contextmanager
def within_memory(remedy: str = _SMALLER) -> Iterator[None]:
    """Turn the end of the memory, of a GPU or of the machine, into a sentence that ends in a remedy."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise ModelError(f"the models and their work do not fit into the memory; {remedy}") from error


def check_device(device: str) -> None:
    """Refuse a GPU that is not there."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"device {device!r} was asked for, but torch sees no GPU here; use --device cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"torch knows no device {device!r}; expected cpu, cuda or cuda:1") from error


def settle_device(device: str) -> None:
    """How a GPU is used, whatever runs on it."""
    if torch.device(device).type != "cuda":
        return
    if torch.device(device).index is not None:
        torch.cuda.set_device(device)
    # cuDNN's attention makes a plan for every number of keys that it meets, and decoding has another one each round.
    torch.backends.cuda.enable_cudnn_sdp(False)


def check_fit(target: Target, drafter: DFlashDrafter | Eagle3Head) -> None:
    """Refuse a drafter that was made for another target; an EAGLE-3 head learns here which layers it reads."""
    if isinstance(drafter, Eagle3Head):
        drafter.config = drafter.config.for_target(target.num_layers)
        check_head(drafter, target)
        return
    check_sizes(drafter.config, target.name, target.num_layers, target.embedding.embedding_dim, target.vocab_size)


def dtype_of(name: str) -> torch.dtype:
    """A dtype by its name."""
    if name not in _DTYPES:
        raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}; got {name!r}")
    return _DTYPES[name]
