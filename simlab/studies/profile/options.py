"""What is measured on this machine: the options of ``simlab profile``. Nothing here imports torch."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.limits import whole_number
from simlab.options import count, one_batch_option, option
from simlab.real_runner.model_options import (
    DTYPES,
    AnswerOptions,
    ChannelCheckpoint,
    block_option,
    channel_checkpoint,
    device_map_option,
    draft_option,
    execution_option,
    model_threads_option,
    noise_option,
    tap_offset_option,
    target_option,
)
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.profile.options import ProfileChannel

_HIGHEST, _MOST_NUMBERS, _MOST_REPEATS = 1_000_000, 10_000, 100_000
_MEASURED, _SAMPLING = "what is measured", "sampling, which is part of verification"


def _whole_numbers(text: str) -> list[int]:
    """``1,2,8..12``, both ends included, in any order."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = whole_number(first, 0, _HIGHEST)
        high = whole_number(last, 0, _HIGHEST) if dots else low
        if not low <= high:
            raise ValueError(f"expected rising ranges such as 8..12; got {part!r}")
        if len(numbers) + high - low >= _MOST_NUMBERS:
            raise ValueError(f"expected at most {_MOST_NUMBERS:,} numbers; {part!r} is too many")
        numbers += range(low, high + 1)
    return numbers


def _node_counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({0, *_whole_numbers(text)}))


def _contexts(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted(set(_whole_numbers(text))))
    if numbers[0] == 0:
        raise ValueError(f"expected whole numbers, at least 1; got {text!r}")
    return numbers


def _missed(text: str) -> tuple[int, ...]:
    return tuple(sorted({1, *_contexts(text)}))


@dataclass(frozen=True)
class ProfileRequest:
    """Which rounds are timed, on which models, and how often; what is None is as the file at ``out`` has it."""

    DETAILS: ClassVar = """\
Runs real rounds of target and drafter over a grid of tree sizes and context lengths, and autoregressive
decoding beside them. Writes the seconds of each stage to one cost file, the latency profile with which
`simlab replay --cost` predicts speeds. Other work on the machine is measured too: leave it alone meanwhile.

  simlab profile --dtype bfloat16 --out runs/cost.json
  simlab profile --batch 4 --out runs/cost4.json      for simlab replay --batch 4 --cost runs/cost4.json
  simlab profile --out runs/cost.json --resume        continue, under the options it was begun with
  simlab profile --out runs/cost.json --resume --channel treeflash=treeflash-smollm2-135m --units 4,8,16"""

    RESUME: ClassVar = "what was measured is in {out}: add --resume to go on"

    target: str | None = target_option()
    draft: str | None = draft_option()
    _: KW_ONLY
    tap_offset: str | None = tap_offset_option("as the drafter's format has it")
    block: int | None = block_option()
    noise: Noise | None = noise_option()
    out: str | Path = option(Path("runs/cost.json"), "the cost file", "FILE", read=Path, example="cost.json")
    resume: bool = option(False, "continue the file that is there")
    node_counts: Sequence[int] | None = option(
        None,
        "drafted tokens, such as 1,2,8..12; 0 is always measured (default 18 numbers from 0 to 512; with cuda_graphs "
        "both ends of each size of a pass)",
        "LIST",
        read=_node_counts,
        group=_MEASURED,
    )
    contexts: Sequence[int] | None = option(
        None,
        "tokens before the root (default 128,256,512,1024,2048)",
        "LIST",
        read=_contexts,
        group=_MEASURED,
    )
    repeats: int | None = option(
        None,
        "measurements of each cell, with --until-interval at least (default 9)",
        "N",
        read=count(1, _MOST_REPEATS),
        group=_MEASURED,
    )
    until_interval: float | None = option(
        None,
        "go on until the price of every round over autoregressive decoding's is known to this share of it, by 95 % "
        "intervals: 0.03 is 3 %",
        "X",
        group=_MEASURED,
    )
    time_limit: float | None = option(
        None,
        "end after so many minutes of measuring, once every cell has been measured",
        "M",
        group=_MEASURED,
    )
    batch: int | None = one_batch_option(
        "texts at a time, each with as many drafted tokens and as long a context (default 1)", _MEASURED
    )
    channel: Sequence[ChannelCheckpoint] | Mapping[str, ProfileChannel] = option(
        (),
        "time a channel too, made by this network, with the settings of `simlab record --add-channel`; may be "
        "repeated. With --resume it is added to the file",
        "NAME=CHECKPOINT[,KEY=N...]",
        read=channel_checkpoint,
        repeats=True,
        group=_MEASURED,
    )
    units: Sequence[int] | None = option(
        None,
        "how much of a channel is made, such as 4,8,16: of a TreeFlash head its `previous` (default: as its settings "
        "have it)",
        "LIST",
        read=_contexts,
        group=_MEASURED,
    )
    catch_up: Sequence[int] | None = option(
        None,
        "time drafts that read so many missed tokens first, such as 1,16,64,256 (1 stands for none and is always "
        "measured): what a router's drafters take that did not run for a while, the drafter's and those of each "
        "--channel that reads the text itself",
        "LIST",
        read=_missed,
        group=_MEASURED,
    )
    temperature: float | None = option(None, "sampling temperature; 0: greedy (default 0)", "X", group=_SAMPLING)
    top_p: float | None = option(None, "top-p (nucleus) sampling; 1: off (default 1)", "X", group=_SAMPLING)
    top_k: int | None = option(None, "top-k sampling; 0: off (default 0)", "N", read=count(0), group=_SAMPLING)
    dtype: str | None = option(None, "dtype of the models (default float32)", choices=DTYPES, group="running")
    device: str | None = option(None, "cpu, cuda, cuda:1, ... (default cpu)", "NAME", group="running")
    device_map: str | None = device_map_option()
    execution: str | None = execution_option()
    threads: int | None = model_threads_option()
    text: str | None = None
    """What the models read; None: real words that come with simlab and with Python."""

    def __post_init__(self) -> None:
        _ = AnswerOptions(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k).sampling
        names = list(self.channel) if isinstance(self.channel, Mapping) else [name for name, _, _ in self.channel]
        if len(set(names)) < len(names):
            raise ValueError("--channel is there twice with one name; leave one out, or name another channel")
        if self.units is not None and not names:
            raise ValueError(
                "--units says how much of a channel is timed; name the channel with --channel NAME=CHECKPOINT"
            )
