"""What a person asks of a recording. Nothing here imports torch, so that the command line can read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from simlab.errors import PromptError
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.execution.executions import check_device_map
from simlab.sampling.choice import Sampling
from simlab.traces.format.manifest_entries import check_kept
from simlab.untrusted.json_text import parse_json
from simlab.workers.on_ray import LOCAL, RayOptions, ray_options
from simlab.workers.parts import Part

_SET_HERE = {"conversation", "conversations", "messages", "add_generation_prompt", "continue_final_message", "tokenize"}
_SET_HERE |= {"tokenizer_kwargs", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
_SET_HERE |= {"return_assistant_tokens_mask"}
"""Arguments of a chat template that simlab sets itself."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, from which models, and how. One of the three sources of text is given.

    Attributes:
        prompts: a prompt file; the target answers.
        completions: a file of texts made elsewhere, teacher-forced.
        hidden_states: a folder of hidden states that an engine dumped along the completions; the target's layers
            then never run here.
        hidden_layers: which states each of these files holds, as the engine was asked for them.
        text_from: a trace whose texts are used again, for another drafter.
        more_devices: a worker more for each; they share the shards with the first device.
        ray: ``local``, or the address of a Ray cluster, whose workers record; None: this process does, or with
            ``more_devices`` a local Ray.
        workers: of Ray; None: as many as it has room for.
        gpus_per_worker: where ``device_map`` spreads a target; None: 1 on a GPU.
        device_map: ``auto`` spreads the target over devices; None: one has it.
        batch_size: prompts that are decoded as one batch and written as one shard.
        limit: at most so many prompts; None takes all.
        resume: keep the finished shards of a recording that was interrupted.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the drafter's format has it.
        block: slots of the drafter's block, the root's counted; None: as the checkpoint has it.
        part: of the shards, for one of several machines; None: all of them.
    """

    target: str
    draft: str
    out: Path
    prompts: Path | None = None
    completions: Path | None = None
    hidden_states: Path | None = None
    hidden_layers: tuple[int, ...] = ()
    text_from: str | None = None
    limit: int | None = None
    resume: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 256
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)
    dtype: str = "float32"
    device: str = "cpu"
    more_devices: tuple[str, ...] = ()
    ray: str | None = None
    workers: int | None = None
    gpus_per_worker: int | None = None
    device_map: str | None = None
    batch_size: int = 32
    min_width: int = 64
    exact_budget: int = 512
    tap_offset: str | None = None
    block: int | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        given = [source for source in (self.prompts, self.completions, self.text_from) if source is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of prompts, completions and text_from must be given; got {len(given)}")
        if self.hidden_states is not None and self.completions is None:
            raise ValueError("hidden states belong to texts that were made elsewhere; give --completions with them")
        if self.hidden_layers and self.hidden_states is None:
            raise ValueError("--hidden-layers says which states --hidden-states holds; give both")
        if self.hidden_states is not None and self.tap_offset == "auto":
            raise ValueError("--tap-offset auto runs the target, whose layers stay away here; give 0 or 1")
        check_device_map(
            self.device_map,
            {
                f"--device {','.join(self.devices)}": bool(self.more_devices),
                "--hidden-states": self.hidden_states is not None,
            },
        )
        check_kept(self.min_width, self.exact_budget)
        self._check_ray()

    def _check_ray(self) -> None:
        ray_options(self.ray, self.workers)
        if self.ray is not None and self.more_devices:
            raise ValueError("--ray places the workers itself; give --device cuda or --device cpu, and --workers N")
        if self.gpus_per_worker is not None and (self.ray is None or self.device_map is None):
            raise ValueError("--gpus-per-worker is read with --ray and --device-map auto; leave it out")

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices, the first first."""
        return (self.device, *self.more_devices)

    @property
    def on_ray(self) -> RayOptions | None:
        """The workers that record; None: this process does."""
        if self.ray is None and not self.more_devices:
            return None
        on_gpu = self.device.startswith("cuda")
        gpus = (self.gpus_per_worker or 1) if on_gpu else 0
        if self.ray is not None:
            return RayOptions(self.ray, self.workers, gpus, units_ahead=1)
        visible = tuple(device.partition(":")[2] or "0" for device in self.devices) if on_gpu else None
        return RayOptions(LOCAL, len(self.devices), gpus, visible, units_ahead=1)

    @property
    def of_a_worker(self) -> "RecordOptions":
        """What a worker records with: Ray shows it the GPUs that are its own."""
        device = "cuda" if self.device.startswith("cuda") else self.device
        return replace(self, device=device, more_devices=(), ray=None, workers=None, gpus_per_worker=None)

    @property
    def sampling(self) -> Sampling:
        """How the target chooses its tokens."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    @property
    def kept(self) -> KeptCandidates:
        """How many candidates are kept."""
        return KeptCandidates(self.min_width, self.exact_budget)


def parse_template_kwargs(text: str) -> dict[str, object]:
    """The arguments of a chat template from the command line.

    >>> parse_template_kwargs('{"enable_thinking": false}')
    {'enable_thinking': False}
    """
    try:
        parsed = parse_json(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        example = "a JSON object such as '{\"enable_thinking\": false}'"
        raise PromptError(f"--chat-template-kwargs must be {example}; got {text!r}")
    if taken := sorted(_SET_HERE & parsed.keys()):
        raise PromptError(f"--chat-template-kwargs may not set {', '.join(taken)}; simlab sets them itself")
    return parsed
