"""What a reproduction reads: traces, prices, policies, and files that others released."""

from dataclasses import dataclass
from pathlib import Path

from simlab.studies.inputs.trace import TraceSource


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """Which published figure, and what its reproduction reads; each reads some of it.

    Attributes:
        name: of the figure; None: a list of all.
        traces: recorded traces.
        dev_trace: a trace of other prompts, on which the budget is chosen.
        draft: the draft set; None: the only one.
        cost: a cost file.
        policies: whose two means are taken; none: a usual set.
        limit: the first so many prompts of each trace only.
        progress: whether a bar is shown; None: on a terminal.
        data: released files: a clone, or an address; None: they are fetched from where they were released.
    """

    name: str | None = None
    traces: tuple[TraceSource, ...] = ()
    dev_trace: TraceSource | None = None
    draft: str | None = None
    cost: Path | None = None
    policies: tuple[str, ...] = ()
    limit: int | None = None
    progress: bool | None = None
    data: str | Path | None = None
