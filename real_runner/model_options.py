"""Options of the commands that run models, each declared once. Nothing here imports torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from simlab.errors import PromptError, UsageError, as_usage_error, named_or_listed
from simlab.limits import MOST_SEED, shown, whole_number
from simlab.options import count, option
from simlab.policy import MADE_WITH
from simlab.real_runner.execution.executions import AUTO, EXECUTIONS, execution_help
from simlab.real_runner.networks.adapter.noise import Noise, parse_noise
from simlab.real_runner.networks.known import tap_offset_help
from simlab.sampling.choice import Sampling
from simlab.untrusted.json_text import parse_json

TARGET, DRAFTER = "smollm2-135m", "dflash-smollm2-135m"
"""The models that come with simlab."""

DTYPES = ("float32", "bfloat16", "float16")

MIN_WIDTH, EXACT_BUDGET = 64, 512
"""How many candidates of a depth are kept, and the largest exact best-first tree, where nothing else is asked for."""

_MOST_THREADS = 1024
_CHANNEL_SETTINGS = tuple(dict.fromkeys(key for keys in MADE_WITH.values() for key in keys))

Value = TypeVar("Value")

ChannelCheckpoint = tuple[str, str, Mapping[str, int]]
"""Name, checkpoint and settings of a channel."""


_SET_HERE = {"conversation", "conversations", "messages", "add_generation_prompt", "continue_final_message", "tokenize"}
_SET_HERE |= {"tokenizer_kwargs", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
_SET_HERE |= {"return_assistant_tokens_mask"}
"""Arguments of a chat template that simlab sets itself."""


def value_or(value: Value | None, default: Value) -> Value:
    """A value that was given, else the default; 0 and empty values were given."""
    return default if value is None else value


def named_checkpoint(text: str) -> tuple[str, str]:
    """Name and checkpoint of ``NAME=CHECKPOINT``."""
    name, equals, checkpoint = text.partition("=")
    if not (name and equals and checkpoint):
        raise ValueError(f"expected NAME=CHECKPOINT, such as treeflash=runs/head; got {shown(text)}")
    return name, checkpoint


def channel_checkpoint(text: str) -> ChannelCheckpoint:
    """Name, checkpoint and settings of ``NAME=CHECKPOINT,key=value``."""
    named, *typed = text.split(",")
    settings: dict[str, int] = {}
    for setting in typed:
        key, _, value = setting.partition("=")
        if key not in _CHANNEL_SETTINGS:
            asked = named_or_listed(key, _CHANNEL_SETTINGS, f"expected {', '.join(_CHANNEL_SETTINGS)}")
            raise ValueError(f"a channel has no setting {shown(key)}{asked}")
        if key in settings:
            raise ValueError(f"the setting {key} of a channel is there twice; leave one out")
        settings[key] = whole_number(value, 1)
    return *named_checkpoint(named), settings


def layer_numbers(text: str) -> tuple[int, ...]:
    """Layer numbers such as ``2,10,18,36``."""
    try:
        return tuple(whole_number(part.strip(), 0) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected layer numbers such as 2,10,18,36; got {shown(text)}") from error


def device_names(text: str) -> tuple[str, ...]:
    """Devices such as ``cuda:0,cuda:1``."""
    names = tuple(text.split(","))
    if not all(names):
        raise ValueError(f"expected devices such as cuda:0,cuda:1; got {text!r}")
    return names


def _block(text: str) -> int:
    slots = whole_number(text, 1)
    if slots < 2:
        raise ValueError(f"a block has at least 2 slots, the root's counted; got {shown(text)}")
    return slots


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
    check_template_kwargs(parsed, "--chat-template-kwargs")
    return parsed


def check_template_kwargs(parsed: Mapping[str, object], what: str) -> None:
    """Refuse arguments of a chat template that simlab sets itself.

    Args:
        parsed: the arguments.
        what: they are called in the message.

    Raises:
        PromptError: one of them is set here.
    """
    if fixed := sorted(_SET_HERE & parsed.keys()):
        raise PromptError(f"{what} may not set {', '.join(fixed)}; simlab sets them itself")


def target_option(otherwise: str = TARGET) -> str | None:
    """``--target``; not given, it is None."""
    return option(None, f"a folder, or a Hub id (default {otherwise})", "T")


def draft_option(otherwise: str = DRAFTER) -> str | None:
    """``--draft``: a drafter's checkpoint; not given, it is None."""
    return option(None, f"a folder, a *.safetensors file, or a Hub id (default {otherwise})", "D")


def dtype_option(otherwise: str = "float32", default: str | None = "float32") -> Any:  # noqa: ANN401 - a name, or None
    """``--dtype`` of the models' arithmetic."""
    help_text = "dtype of the models" if default is not None else f"dtype of the models (default {otherwise})"
    return option(default, help_text, choices=DTYPES, group="running")


def device_option(group: str = "running") -> str:
    """``--device`` that models run on."""
    return option("cpu", "cpu, cuda, cuda:1, ...", "NAME", group=group)


def device_map_option() -> str | None:
    """``--device-map``, which spreads a target over devices."""
    help_text = (
        "auto: a target too large for one device is spread over all GPUs and, where these are full, the machine's "
        "memory"
    )
    return option(None, help_text, choices=(AUTO,), group="running")


def model_threads_option() -> int | None:
    """``--threads`` of running models."""
    return option(None, "CPU threads (default: as torch chooses)", "N", read=count(1, _MOST_THREADS), group="running")


def execution_option() -> str | None:
    """``--execution``, which says how the models' operations are started; not given, it is None."""
    return option(None, execution_help(), choices=tuple(EXECUTIONS), group="running")


def tap_offset_option(otherwise: str, group: str = "") -> str | None:
    """``--tap-offset``: how a drafter's checkpoint numbers the target's layers.

    Args:
        otherwise: what holds where it is not given, in words.
        group: the heading.
    """
    help_text = (
        f"how the drafter numbers the target's layers: {tap_offset_help()}, auto finds out by trying both "
        f"(default: {otherwise})"
    )
    return option(None, help_text, choices=("auto", "0", "1"), group=group)


def block_option() -> int | None:
    """``--block``: slots of the drafter's block."""
    help_text = (
        "slots of the drafter's block, the root's counted, as an engine runs it: vLLM's num_speculative_tokens plus 1, "
        "SGLang's speculative-num-draft-tokens (default: as the checkpoint has it)"
    )
    return option(None, help_text, "N", read=_block)


def noise_option() -> Noise | None:
    """``--noise``: what stands in place of masks."""
    help_text = (
        "tokens in place of an adapter's masks (UNO): deterministic,below=N,salt=N; random,below=N,seed=N; mask,token=N"
    )
    return option(None, help_text, "NOISE", read=parse_noise)


def min_width_option() -> int:
    """``--min-width``: candidates that are kept at each depth."""
    return option(MIN_WIDTH, "candidates per depth", "N", group="what is kept")


def exact_budget_option() -> int:
    """``--exact-budget``: the largest tree that a replay builds exactly."""
    return option(EXACT_BUDGET, "the largest exact best-first tree", "N", group="what is kept")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """How a target is to write its answers; None: not given, so that the default holds."""

    temperature: float | None = option(None, "sampling temperature; 0: greedy (default 0)", "X", group="sampling")
    top_p: float | None = option(None, "top-p (nucleus) sampling; 1: off (default 1)", "X", group="sampling")
    top_k: int | None = option(None, "top-k sampling; 0: off (default 0)", "N", read=count(0), group="sampling")
    seed: int | None = option(None, "random seed (default 0)", "N", read=count(0, MOST_SEED), group="sampling")
    max_new_tokens: int | None = option(None, "new tokens per answer, at most (default 256)", "N", group="sampling")
    chat_template_kwargs: Mapping[str, object] | None = option(
        None, "such as '{\"enable_thinking\": false}'", "JSON", read=parse_template_kwargs, group="sampling"
    )

    @property
    def typed(self) -> str:
        """The options that were given, as they are typed: ``--top-p, --seed``; empty without any."""
        names = [field.name for field in fields(AnswerOptions) if getattr(self, field.name) is not None]
        return ", ".join(f"--{name.replace('_', '-')}" for name in names)

    @property
    def sampling(self) -> Sampling:
        """How the target's law becomes a token."""
        with as_usage_error():
            return Sampling(
                temperature=value_or(self.temperature, 0.0),
                top_k=value_or(self.top_k, 0),
                top_p=value_or(self.top_p, 1.0),
                seed=value_or(self.seed, 0),
            )

    @property
    def longest(self) -> int:
        """The most tokens of an answer."""
        return value_or(self.max_new_tokens, 256)

    @property
    def template_kwargs(self) -> Mapping[str, object]:
        """Arguments of the chat template; empty without any."""
        return value_or(self.chat_template_kwargs, {})

    def check_answers(self, idle: str) -> None:
        """Refuse what is out of its range, and everything where texts are there already.

        Args:
            idle: what to say then, with ``{}`` for the options that were given; empty: the target writes.
        """
        if self.typed and idle:
            raise UsageError(idle.format(self.typed))
        _ = self.sampling
