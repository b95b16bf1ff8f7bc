"""What is run on the real models: the options of ``simlab confirm``. Nothing here imports torch."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.options import by_option, limit_option, one_batch_option, option, policies_option
from simlab.policy import GivenPolicies
from simlab.real_runner.model_options import (
    AnswerOptions,
    device_map_option,
    device_option,
    draft_option,
    dtype_option,
    execution_option,
    model_threads_option,
    named_checkpoint,
    tap_offset_option,
    target_option,
)
from simlab.studies.inputs.trace import TraceSource
from simlab.tracking.tracker import track_option

_AS_TRACE = "as the trace names it"


@dataclass(frozen=True)
class ConfirmRequest(AnswerOptions):
    """Which policies run, on which prompts and models, and when that ends."""

    DETAILS: ClassVar = """\
Decodes the prompts of a trace with the real models, every policy in turn, and compares with the
prediction: the speed, the rounds, and whether the text is the target's own.
The prompts are those of --trace DIR, of --prompts FILE (recorded first, into OUT/trace), or of the small packaged
trace. Autoregressive decoding and the chain always run.
Exit code 1: a text is not the target's, or rounds are not those of their replay.

With --from it runs what `simlab optimize` chose: its best policy, the closest rivals and the chain.
--until-interval X ends the run when every speed ratio is known to a share X of it, --time-limit M after M minutes,
whichever comes first; where prompts are used up before, each is run again.
--batch N decodes N texts at a time, in autoregressive decoding too: prompts in groups, each decoded from its first
text to the end of its last by every policy in turn. It confirms `simlab replay --batch N`, with a latency profile of
`simlab profile --batch N`.
--batch-invariant gives every pass of the target the shape of the largest one, so that in bfloat16 too every policy
writes the text of autoregressive decoding, token for token. Autoregressive decoding then pays for as many rows, so
speeds and speedups are those of this mode, and nothing is predicted.

  simlab confirm -p ddtree:budget=16 --dtype bfloat16 --cost runs/cost.json
  simlab confirm --from runs/optimize.json --cost runs/cost.json --until-interval 0.03 --time-limit 20
  simlab confirm --batch 4 -p ddtree:budget=8 -p joint:budget=32 --cost runs/cost4.json --out runs/batches
  simlab confirm --batch-invariant -p ddtree:budget=8 --dtype bfloat16 --limit 8 --out runs/invariant
  simlab confirm -p ddtree:budget=8/16/32 --prompts prompts.jsonl --limit 20 --out runs/mine"""

    RESUME: ClassVar = "finished parts are in {out}: add --resume to go on"

    trace: TraceSource | None = option(
        None, "a recorded trace: a folder, or an address such as hf://...", "DIR", one_of="texts"
    )
    policies: GivenPolicies = policies_option()
    _: KW_ONLY
    choice: str | Path | None = option(
        None, "run what `simlab optimize --out FILE` chose", "FILE", read=Path, names="--from"
    )
    prompts: str | Path | None = option(
        None, "prompts to record first; see `simlab record`", "FILE", read=Path, one_of="texts"
    )
    cost: str | Path | None = option(
        None, "latency profile: a cost file of exactly what is run, or a packaged one", "FILE", read=Path
    )
    reprice: str | Path | None = option(
        None, "write that profile anew, corrected by the rounds that ran", "FILE", read=Path, example="again.json"
    )
    limit: int | None = limit_option()
    batch: int | None = one_batch_option()
    by: str | None = by_option()
    out: str | Path = option(
        Path("runs/confirm"),
        "log, result rows and summary",
        "DIR",
        read=Path,
        writes="Log, result rows and summary",
    )
    resume: bool = option(False, "continue where an interrupted run stopped")
    track: Sequence[str] = track_option()
    target: str | None = target_option(_AS_TRACE)
    draft: str | None = draft_option(_AS_TRACE)
    channel: Sequence[tuple[str, str]] | Mapping[str, str] = option(
        (),
        "where the checkpoint of a channel is now (default: as the trace names it); may be repeated",
        "NAME=CHECKPOINT",
        read=named_checkpoint,
        repeats=True,
        group="running",
    )
    tap_offset: str | None = tap_offset_option("as the trace was recorded", "running")
    dtype: str = dtype_option()
    device: str = device_option()
    device_map: str | None = device_map_option()
    audit_device: str | None = option(
        None,
        "where the audit's float32 target runs, 4 bytes x parameters: cpu, cuda:1, or auto, which spreads it as "
        "--device-map does (default: that of --device)",
        "NAME",
        group="running",
    )
    execution: str | None = execution_option()
    batch_invariant: bool = option(
        False,
        "passes of one fixed shape: the same text in any dtype, slower; caddtree, bastion and price may draft 512 "
        "tokens by default, and then every pass has 520 rows: give them budget=16",
        group="running",
    )
    threads: int | None = model_threads_option()
    repeats: int | None = option(
        None, "how often each text is decoded (default 1; with a stop rule at most 10)", "N", group="running"
    )
    until_interval: float | None = option(
        None,
        "stop when every 95 % interval of a speed ratio reaches no further than this share: 0.03 is 3 %",
        "X",
        group="running",
    )
    time_limit: float | None = option(
        None,
        "take so many minutes, loading, warming up and the audit counted; a prompt that is cut off is left out; 0 with "
        "--resume: stop now",
        "M",
        group="running",
    )

    def __post_init__(self) -> None:
        idle = "{} can change nothing about a trace; leave it out, or record anew with --prompts FILE"
        self.check_answers(idle if self.prompts is None else "")
        if self.prompts is not None and self.trace is not None:
            raise ValueError("a confirmation runs the prompts of a trace or those of a file, not both; leave one out")
