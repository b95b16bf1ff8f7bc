"""What is searched, on which prompts: the options of ``simlab optimize``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.limits import MOST_SEED
from simlab.options import (
    costs_option,
    count,
    dev_trace_option,
    draft_set_option,
    option,
    out_option,
    policies_option,
    progress_option,
    threads_option,
    trace_option,
)
from simlab.studies.inputs.served import engine_option
from simlab.studies.inputs.trace import TraceSource
from simlab.studies.optimize.trials import SEED, TRIALS
from simlab.traces.artefacts.optimum import OBJECTIVES
from simlab.tracking.tracker import track_option
from simlab.workers.parts import Part, ray_option, shard_option, workers_option


@dataclass(frozen=True)
class OptimizeOptions:
    """What is searched, on which prompts it is chosen, and on which it is reported."""

    DETAILS: ClassVar = """\
Every policy of -p (without -p all built-in policies) is replayed on the prompts of --dev-trace. The best
of them is then compared with its rivals, the chain and autoregressive decoding on the prompts of --trace, which
played no part in the choice. Without --dev-trace the prompts of --trace are split in two halves.
-p is typed as for replay, with grids: a/b lists values, 1..256 counts. Many budgets of one policy cost little more
than one. The chain, autoregressive decoding and ddtree at every budget are searched in any case. With --engine
chains of every length and the trees that this engine drafts are searched, and nothing else.
A range a~b is searched with optuna (pip install "simlab[optimize]"); beside it, grids are searched whole.
The objective is tokens/s by the latency profile of --cost, else by the packaged one for the models; with several
--cost the smallest speedup among them over the autoregressive baseline; or the acceptance length.
docs/how_to/optimize.md says how to read the report.

  simlab optimize --dev-trace runs/dev --trace runs/test --out optimize.json
  simlab optimize --dev-trace runs/dev --trace runs/test -p ddtree:budget=1..512 -p caddtree
  simlab optimize --trace runs/mine -p presto:ngram_weight=0.0~1.0,budget=8/16/32 --storage sqlite:///optimize.db
  simlab optimize --trace runs/mine --objective acceptance_length --node-cap 16
  simlab optimize --dev-trace runs/dev --trace runs/test --engine tensorrt-edge-llm
  simlab confirm --from optimize.json

Several machines sum up a part of the prompts each; whoever has all sums chooses (docs/how_to/many_machines.md):

  simlab optimize --trace runs/mine -p ddtree:budget=1..512 --shard 0/4 --sums part0.parquet
  simlab merge part0.parquet part1.parquet part2.parquet part3.parquet --out sums.parquet
  simlab optimize --trace runs/mine -p ddtree:budget=1..512 --sums sums.parquet --out optimize.json"""

    RESUME: ClassVar = "the trials are in {storage}: the same command goes on"

    trace: TraceSource | None = trace_option("the trace that is reported on (default: the packaged one)")
    policies: Sequence[str] = policies_option("with grids and ranges; may be repeated")
    _: KW_ONLY
    dev_trace: TraceSource | None = dev_trace_option(
        "the trace to choose on; no prompt of it may be in --trace (default: the prompts of --trace are split in two)"
    )
    draft_set: str | None = draft_set_option("the draft set, where a trace holds more than one")
    cost: str | Path | Sequence[str | Path] = costs_option(
        "latency profile: a file of `simlab profile`, or the name of a packaged one; repeated: the worst case of all"
    )
    objective: str | None = option(None, "objective to maximise (default: tokens_per_s)", choices=OBJECTIVES)
    engine: str | None = engine_option("search what this engine drafts, and nothing else")
    node_cap: int | None = option(None, "only policies that draft at most N tokens a round", "N")
    halving: bool | None = option(
        None, "drop policies that are clearly worse after a part of the prompts (default: where there are many)"
    )
    threads: int | None = threads_option()
    ray: str | None = ray_option()
    workers: int | None = workers_option()
    progress: bool | None = progress_option()
    track: Sequence[str] = track_option()
    trials: int | None = option(None, f"trials of each -p with a range (default: {TRIALS})", "N", group="ranges")
    seed: int | None = option(
        None, f"random seed of the trials (default: {SEED})", "N", read=count(0, MOST_SEED), group="ranges"
    )
    storage: str | None = option(
        None,
        "keep the trials, and continue earlier ones: sqlite:///FILE, which optuna-dashboard shows",
        "URL",
        group="ranges",
    )
    shard: str | Part | None = shard_option(
        "sum up one part of the prompts into --sums, on each machine another", "several machines"
    )
    sums: str | Path | None = option(
        None,
        "with --shard the file to write; without it, merged sums of the same search, which are not made again",
        "FILE",
        read=Path,
        group="several machines",
    )
    out: str | Path | None = out_option(
        "write the choice, for `simlab confirm --from`", "Choice", "optimize.json", "files"
    )
    results: str | Path | None = out_option(
        "write the finalists' result rows on the prompts of the report", "Result rows", "results.parquet", "files"
    )
