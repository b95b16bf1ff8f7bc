"""A target and a drafter that fit each other."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from simlab.errors import ModelError
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.compiled_layers import prepare
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.text_passes import TextPasses, text_passes
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.drafter import AnyDrafter, Asked, Drafts, find_drafter
from simlab.real_runner.networks.loading import drafts_of, load_drafter
from simlab.real_runner.networks.producer import AnyProducer
from simlab.real_runner.targets.dumped_states import DumpedStates
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.placement import DeviceMap

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SMALLER = "give a smaller --batch-size, or --dtype bfloat16"
_NO_MEMORY = ("out of memory", "can't allocate memory")


@dataclass(frozen=True, slots=True)
class Models:
    """Both models, loaded, and where the drafter's files lie.

    ``dumped``: hidden states in place of the target's layers, which are then not loaded. ``fixed_rows``: so many
    rows has every pass that decides a token, see `simlab.real_runner.attention.batch_invariant`; 0: as many as there
    are tokens. ``execution``: one of `simlab.real_runner.execution.executions.EXECUTIONS`, as which both already run.
    ``graphs``: captured passes, which decoding then uses. ``texts``: those that write many texts at once, on a GPU;
    the target's modules do otherwise. ``channels``: what makes the channels that policies read, by
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
    texts: TextPasses | None = None
    channels: Mapping[str, AnyProducer] = field(default_factory=dict)

    @property
    def block_drafter(self) -> DFlashDrafter:
        """The drafter, for what goes on from a pass of blocks."""
        if isinstance(self.drafter, DFlashDrafter):
            return self.drafter
        raise ModelError(
            f"the drafter here is {self.drafter.config.no_blocks}: one text at a time, eagerly, and no network goes on "
            "from its pass; leave --batch, --execution, --tap-offset and such channels out, or give a DFlash drafter"
        )

    @property
    def first_stage(self) -> DFlashDrafter | OwnDrafter:
        """What a first-order head goes on from: the drafter's pass, or the target's own masks."""
        return self.drafts if isinstance(self.drafts, OwnDrafter) else self.block_drafter

    @property
    def drafts(self) -> Drafts:
        """The drafter and the target, as what drafts."""
        return drafts_of(self.drafter, self.target)


def load_models(
    target: str,
    draft: str,
    dtype: str,
    device: str,
    tap_offset: int | None = None,
    execution: str = EAGER,
    device_map: DeviceMap | None = None,
    block: int | None = None,
    noise: Noise | None = None,
) -> Models:
    """Load both models and see that they fit.

    Args:
        target: a name, folder or hub id.
        draft: as that, or a file with weights beside its ``config.json``.
        dtype: of both.
        device: as torch names it.
        tap_offset: what to add to the drafter's layer numbers; None: as its format has it.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        device_map: where the parts of the target are, in place of ``device``; the drafter is where it begins.
        block: slots of the drafter's block, the root's counted; None: as the checkpoint has it.
        noise: that stands in place of masks; None: as the checkpoint has it.

    Raises:
        ModelError: they cannot be loaded, the drafter belongs to another target, or they cannot be executed so.
    """
    kind = _settled(dtype, device, device_map)
    files = find_drafter(draft)
    asked = Asked(files.folder, kind, device, tap_offset, execution, device_map is not None, block, noise)
    with_target = load_drafter(asked)
    loaded = load_target(target, kind, device, device_map)
    drafter = with_target(loaded)
    graphs = prepare(loaded, drafter, execution)
    return Models(
        target=loaded,
        drafter=drafter,
        draft_folder=files.folder,
        draft_revision=files.revision,
        execution=execution,
        graphs=graphs,
        texts=text_passes(loaded),
    )


def load_only_target(target: str, dtype: str, device: str, device_map: DeviceMap | None = None) -> Target:
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


def dtype_of(name: str) -> torch.dtype:
    """A dtype by its name."""
    if name not in _DTYPES:
        raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}; got {name!r}")
    return _DTYPES[name]
