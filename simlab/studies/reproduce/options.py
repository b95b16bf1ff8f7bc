"""What a reproduction reads: traces, prices, policies, and files that others released."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.options import (
    cost_option,
    dev_trace_option,
    draft_set_option,
    limit_option,
    option,
    policies_option,
    progress_option,
)
from simlab.policy import GivenPolicies
from simlab.studies.inputs.trace import TraceSource


@dataclass(frozen=True)
class ReproduceOptions:
    """Which published figure, and what its reproduction reads; each reads some of it."""

    DETAILS: ClassVar = """\
Without a name it lists what is known and whether it can be run here.

With what comes with simlab, or with traces of your own:
  ddtreepp-rounds  4,392 GPU rounds that others released, through the statistics of this project
  averaging        the pooled mean and the macro average, on the packaged trace and each --trace
  zlab-166         a printed acceptance length; needs a trace of its models
  ddtree-gsm8k     a tree's gain over the chain, its budget chosen on dev prompts; needs two traces and a cost file

With files that others released. They are fetched from the repository at one commit, checked and kept; --data takes a
clone instead. Their figures are read from their own files, which are named with their digests:
  domino-rounds    which mean a published table has, and which of its comparisons remain with intervals over prompts
  domino-gsm8k     Qwen3-8B on GSM8K by another group: which published figures are near
  domino-caddtree  whether costs changed what was drafted
  domino-lossless  where texts diverge from autoregressive decoding's, and what cannot be known
  specdecode-bench chains of a fixed length, the oracle and an adaptive rule, at batch sizes
  adixg-cost       what a pass costs by context on an H100, and what a wrong price costs

With a trace, each setting that must be equal is compared with its manifest, and what differs is named; the figures are
printed all the same. docs/how_to/reproduce.md says more.

  simlab study reproduce
  simlab study reproduce ddtreepp-rounds
  simlab study reproduce domino-rounds
  simlab study reproduce domino-rounds --data Domino-Tree
  simlab study reproduce averaging --trace runs/mine --trace runs/other
  simlab study reproduce zlab-166 --trace runs/zlab-166"""

    name: str | None = option(None, "of the list; without it, the list", "NAME", positional=True)
    _: KW_ONLY
    traces: Sequence[TraceSource] = option(
        (), "a recorded trace; may be repeated for averaging", "DIR", names="--trace", repeats=True
    )
    dev_trace: TraceSource | None = dev_trace_option("a trace of other prompts, on which the budget is chosen")
    draft_set: str | None = draft_set_option("the draft set, where a trace holds more than one")
    data: str | Path | None = option(
        None, "released files: a clone, or an address; else they are fetched and kept", "PATH"
    )
    cost: str | Path | None = cost_option()
    policies: GivenPolicies = policies_option("of averaging; may be repeated")
    limit: int | None = limit_option("the first N prompts of each trace only")
    progress: bool | None = progress_option()
