"""What a reproduction reads: traces, prices, policies, and files that others released."""

from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.reproduce.published import PUBLISHED
from simlab.errors import UsageError
from simlab.studies.inputs.trace import TraceSource

_TYPED = {
    "traces": "--trace",
    "dev_trace": "--dev-trace",
    "draft": "--draft",
    "cost": "--cost",
    "policies": "--policy",
    "limit": "--limit",
    "progress": "--progress",
    "data": "--data",
}
"""How each option is typed."""


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """What a reproduction reads; each reads some of it.

    Attributes:
        traces: recorded traces.
        dev_trace: a trace of other prompts, on which the budget is chosen.
        draft: the draft set; None: the only one.
        cost: a cost file.
        policies: whose two means are taken; none: a usual set.
        limit: the first so many prompts of each trace only.
        progress: whether a bar is shown; None: on a terminal.
        data: released files: a clone, or an address; None: they are fetched from where they were released.
    """

    traces: tuple[TraceSource, ...] = ()
    dev_trace: TraceSource | None = None
    draft: str | None = None
    cost: Path | None = None
    policies: tuple[str, ...] = ()
    limit: int | None = None
    progress: bool | None = None
    data: str | Path | None = None


def check_options(name: str | None, options: ReproduceOptions) -> None:
    """Refuse options that a reproduction does not read.

    Args:
        name: of the published figure; None: the list of all.
        options: those that were given.

    Raises:
        UsageError: there is one.
    """
    used = () if name is None else PUBLISHED[name].uses
    for field, typed in _TYPED.items():
        if getattr(options, field) not in (None, ()) and field not in used:
            raise UsageError(f"{typed} says nothing to {name or 'the list'}; leave it out")
    if len(options.traces) > 1 and name != "averaging":
        raise UsageError(f"{name} takes one --trace; got {len(options.traces)}")
