"""What a person asks of a recording. Nothing here imports torch, so that the command line can read it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from simlab.options import limit_option, option
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.execution.executions import check_device_map
from simlab.real_runner.model_options import (
    DRAFTER,
    TARGET,
    AnswerOptions,
    ChannelCheckpoint,
    block_option,
    channel_checkpoint,
    device_map_option,
    device_names,
    draft_option,
    dtype_option,
    exact_budget_option,
    layer_numbers,
    min_width_option,
    named_checkpoint,
    noise_option,
    tap_offset_option,
    target_option,
)
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.traces.format.manifest_entries import check_kept
from simlab.workers.on_ray import LOCAL, RayOptions, ray_options
from simlab.workers.parts import Part, parse_part, ray_option, shard_option, workers_option

CONFIGS, SAMPLE = "configs", "sample"
"""Of ``--dry-run``: what is worked out from both config.json, and what is measured on a few prompts."""

OF_TEXTS = (
    *("out", "limit", "hidden_states", "hidden_layers", "temperature", "top_p", "top_k", "seed", "max_new_tokens"),
    *("chat_template_kwargs", "batch_size", "ray", "workers", "gpus_per_worker", "shard"),
)
"""Options that say which texts are recorded, where and how."""

OF_DRAFTS = ("min_width", "exact_budget", "tap_offset", "block", "noise")
"""Options that say what is kept of a drafter, and how it is read."""


@dataclass(frozen=True)
class RecordOptions(AnswerOptions):
    """What to record, from which models, and how; or what to add to a trace that is there."""

    DETAILS: ClassVar = """\
The text comes from one of --prompts (the target answers them), --completions (text made
elsewhere) and --text-from (the text of another trace, for another drafter). With --hidden-states
the target's layers do not run: they ran in a serving engine that dumped them. Target and drafter
are a name that comes with simlab, a folder, or an id on the Hugging Face Hub such as Qwen/Qwen3-4B.

  simlab record --target smollm2-135m --draft dflash-smollm2-135m --prompts prompts.jsonl --out runs/mine
  simlab record --target Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16 --completions served.jsonl \\
    --hidden-states dumped --hidden-layers 2,10,18,26,34,36 --out runs/served
  simlab replay --trace runs/mine -p ddtree:budget=16/32/64

A head of EAGLE-3 is a --draft too: its chain becomes the draft set, its trees the channel eagle3. So is an
adapter with which a target drafts for itself: what it says at its own masks becomes the draft set self.

A head of TreeFlash, a scorer of TAPS, or another drafter, is added to a finished trace along its own texts:

  simlab record --trace runs/mine --add-channel treeflash=runs/head,previous=16,top_k=16
  simlab record --trace runs/mine --add-draft other=runs/drafter

Several machines record a part each: with --shard 0/4 to 3/4, into one folder that they share, or each into its own
(docs/how_to/many_machines.md)."""

    target: str | None = target_option(f"{TARGET}; with --trace as the trace names it")
    draft: str | None = draft_option(f"{DRAFTER}; with --trace as the trace names it")
    prompts: str | Path | None = option(
        None, "JSONL: turns, messages, ShareGPT, or prompt", "FILE", read=Path, one_of="text!", kw_only=True
    )
    completions: str | Path | None = option(
        None, "JSONL of prompts with their answers", "FILE", read=Path, one_of="text!", kw_only=True
    )
    text_from: str | Path | None = option(None, "a trace whose text to take", "TRACE", one_of="text!", kw_only=True)
    trace: str | Path | None = option(
        None, "a finished trace, to which something is added", "DIR", one_of="text!", kw_only=True
    )
    hidden_states: str | Path | None = option(
        None, "hidden states that vLLM dumped along --completions", "DIR", read=Path, kw_only=True
    )
    hidden_layers: Sequence[int] = option(
        (),
        "the layers whose states these files hold: vLLM's eagle_aux_hidden_state_layer_ids",
        "K,K,...",
        read=layer_numbers,
        kw_only=True,
    )
    tap_offset: str | None = tap_offset_option("as its format has it")
    block: int | None = block_option()
    noise: Noise | None = noise_option()
    out: str | Path | None = option(None, "the folder of the new trace", "DIR", read=Path, kw_only=True)
    limit: int | None = limit_option()
    resume: bool = option(False, "go on where an interrupted recording stopped", kw_only=True)
    dry_run: str | None = option(
        None,
        "record nothing. configs (default): memory and disk, computed from both config.json; nothing else is fetched. "
        "sample: the first prompt, size and time, measured on a few prompts",
        choices=(CONFIGS, SAMPLE),
        alone=CONFIGS,
        kw_only=True,
    )
    dtype: str | None = dtype_option("float32; with --trace that of the trace", None)
    device: str | Sequence[str] = option(
        ("cpu",),
        "cpu, cuda, cuda:1, ...; of several, each gets a worker and some of the batches",
        "NAME[,NAME...]",
        read=device_names,
        group="running",
    )
    device_map: str | None = device_map_option()
    ray: str | None = ray_option("running")
    workers: int | None = workers_option("running")
    gpus_per_worker: int | None = option(
        None, "with --device-map auto: GPUs of one worker (default 1)", "N", group="running"
    )
    shard: str | Part | None = shard_option(
        "record one part of the batches, on each machine another, into one folder or each its own", "running"
    )
    batch_size: int = option(32, "prompts in a batch and a shard", "N", group="running")
    min_width: int = min_width_option()
    exact_budget: int = exact_budget_option()
    add_channel: ChannelCheckpoint | None = option(
        None,
        "a TreeFlash head, by previous (tokens of each depth that have a row, default 16), top_k (tokens of a row, "
        "default 16) and candidates (score the drafter's first N alone; default: the whole vocabulary); or a TAPS "
        "scorer, by beam (nodes of each depth) and extensions (candidates looked at below each; default: as trained)",
        "NAME=CHECKPOINT[,KEY=N...]",
        read=channel_checkpoint,
        group="what is added to --trace",
        one_of="addition",
    )
    add_draft: tuple[str, str] | None = option(
        None,
        "another drafter",
        "NAME=CHECKPOINT",
        read=named_checkpoint,
        group="what is added to --trace",
        one_of="addition",
    )
    draft_set: str | None = option(
        None,
        "the draft set that a channel extends, where the trace holds more than one",
        "NAME",
        group="what is added to --trace",
    )
    typed_names: frozenset[str] = field(default=frozenset(), repr=False, compare=False, kw_only=True)
    """Fields that were typed on the command line, also where what was typed is the default."""

    def __post_init__(self) -> None:
        given = [
            source for source in (self.prompts, self.completions, self.text_from, self.trace) if source is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of prompts, completions, text_from and trace must be given; got {len(given)}"
            )
        if self.hidden_states is not None and self.completions is None:
            raise ValueError("hidden states belong to texts that were made elsewhere; give --completions with them")
        if self.hidden_layers and self.hidden_states is None:
            raise ValueError("--hidden-layers says which states --hidden-states holds; give both")
        if self.hidden_states is not None and self.tap_offset == "auto":
            raise ValueError("--tap-offset auto runs the target, whose layers stay away here; give 0 or 1")
        several, dumped = len(self.devices) > 1, self.hidden_states is not None
        check_device_map(self.device_map, {f"--device {','.join(self.devices)}": several, "--hidden-states": dumped})
        check_kept(self.min_width, self.exact_budget)
        ray_options(self.ray, self.workers)
        if self.ray is not None and several:
            raise ValueError("--ray places the workers itself; give --device cuda or --device cpu, and --workers N")
        if self.gpus_per_worker is not None and (self.ray is None or self.device_map is None):
            raise ValueError("--gpus-per-worker is read with --ray and --device-map auto; leave it out")
        reason = "--text-from takes texts as they were made, where {} can change nothing; leave it out"
        self.check_answers("" if self.text_from is None else reason)
        _ = self.part

    @property
    def folder(self) -> Path:
        """The folder of the new trace."""
        if self.out is None:
            raise ValueError("a recording needs the folder of the new trace; name it with --out DIR")
        return Path(self.out)

    @property
    def target_name(self) -> str:
        """The target that records."""
        return TARGET if self.target is None else self.target

    @property
    def draft_name(self) -> str:
        """The drafter that is recorded."""
        return DRAFTER if self.draft is None else self.draft

    @property
    def model_dtype(self) -> str:
        """In which the models calculate."""
        return "float32" if self.dtype is None else self.dtype

    @property
    def part(self) -> Part | None:
        """Which of the shards are recorded, for one of several machines; None: all of them."""
        return parse_part(self.shard) if isinstance(self.shard, str) else self.shard

    @property
    def first_device(self) -> str:
        """Where this process runs the models."""
        return self.devices[0]

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices; each of several has a worker."""
        return (self.device,) if isinstance(self.device, str) else tuple(self.device)

    @property
    def on_ray(self) -> RayOptions | None:
        """The workers that record; None: this process does."""
        if self.ray is None and len(self.devices) == 1:
            return None
        on_gpu = self.first_device.startswith("cuda")
        gpus = (self.gpus_per_worker or 1) if on_gpu else 0
        if self.ray is not None:
            return RayOptions(self.ray, self.workers, gpus, units_ahead=1)
        visible = tuple(device.partition(":")[2] or "0" for device in self.devices) if on_gpu else None
        return RayOptions(LOCAL, len(self.devices), gpus, visible, units_ahead=1)

    @property
    def of_a_worker(self) -> "RecordOptions":
        """What a worker records with: Ray shows it the GPUs that are its own."""
        device = "cuda" if self.first_device.startswith("cuda") else self.first_device
        return replace(self, device=device, ray=None, workers=None, gpus_per_worker=None)

    @property
    def kept(self) -> KeptCandidates:
        """How many candidates are kept."""
        return KeptCandidates(self.min_width, self.exact_budget)
