"""A confirmation of several texts at a time: its result rows by the groups that were served, and the machine's speed.

Texts that are served together share the seconds of their rounds, and what disturbed the machine meanwhile. So they
are no independent measurements, and intervals are over groups, as they are over prompts where texts run alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from simlab.analysis.confirm.table import ConfirmedPolicy
from simlab.analysis.statistics.intervals import Interval, ratio_interval
from simlab.analysis.statistics.slices import split_by_slice
from simlab.analysis.table.summaries import Scalar
from simlab.analysis.table.text import aligned
from simlab.arrays import Doubles, Longs


def by_group(results: pl.DataFrame, groups: Mapping[int, tuple[str, str]], by: str | None = None) -> pl.DataFrame:
    """Result rows with a group in the place of each prompt, so that what is over prompts is over groups.

    Args:
        results: result rows.
        groups: two names of its group, by the place of the sequence in the trace.
        by: the slice that the rows will be cut by; datasets stay where it is ``dataset``.
    """
    columns = ("dataset", "prompt_id")
    named = pl.DataFrame(
        [(index, *names) for index, names in groups.items()],
        schema={"sequence": pl.Int32(), **{f"group_{name}": pl.String() for name in columns}},
        orient="row",
    )
    found = results.join(named, on="sequence", how="left", maintain_order="left")
    taken = columns[1:] if by == "dataset" else columns
    return found.with_columns(pl.col(f"group_{name}").alias(name) for name in taken).select(results.columns)


def with_prompts(
    policies: Sequence[ConfirmedPolicy], results: pl.DataFrame, by: str | None = None
) -> list[ConfirmedPolicy]:
    """Policies by group with the number of prompts put where that of groups stands.

    Args:
        policies: from `simlab.analysis.confirm.table.confirmed_policies` on the rows by group.
        results: the rows by prompt.
        by: what both are cut by.
    """
    counts = {value: part.select("dataset", "prompt_id").n_unique() for value, part in split_by_slice(results, by)}
    changed = []
    for policy in policies:
        prompts = counts[policy.predicted.slice]
        measured = None if policy.measured is None else replace(policy.measured, prompts=prompts)
        changed.append(replace(policy, predicted=replace(policy.predicted, prompts=prompts), measured=measured))
    return changed


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """Tokens per second of all texts of the batch together under a policy, filler requests among them.

    Attributes:
        tokens_per_s: tokens of all texts over the seconds of all rounds of the batch.
        interval: 95 %, over groups.
    """

    policy: str
    policy_id: str
    tokens_per_s: float
    interval: Interval

    def row(self) -> dict[str, Scalar]:
        """The speed as flat scalars, as a script reads them; what is not known is None."""
        ends = {f"_ci_{name}": getattr(self.interval, name) for name in ("low", "high")}
        values = {"": self.tokens_per_s, **ends}
        return {
            f"measured_machine_tokens_per_s{name}": None if math.isnan(value) else value
            for name, value in values.items()
        }


def machine_speed(policy: str, policy_id: str, tokens: Longs, seconds: Doubles) -> MachineSpeed:
    """Tokens per second of the whole batch under a policy, pooled over groups, with an interval.

    Args:
        policy: its label.
        policy_id: its id.
        tokens: int64 ``[groups]``, repeats added up.
        seconds: float64 ``[groups]``, likewise.
    """
    total_s = float(seconds.sum())
    pooled = float(tokens.sum()) / total_s if total_s else float("nan")
    return MachineSpeed(policy, policy_id, pooled, ratio_interval(tokens, seconds))


def machine_table(speeds: Sequence[MachineSpeed], batch: int) -> str:
    """A row per policy."""
    heading = [f"all {batch} texts together", "tokens/s [95 %]"]
    cells = [[one.policy, _with_interval(one)] for one in speeds]
    return aligned([heading, *cells], [True, True])


def _with_interval(speed: MachineSpeed) -> str:
    known = not math.isnan(speed.interval.low)
    ends = f" [{speed.interval.low:.1f}, {speed.interval.high:.1f}]" if known else ""
    return f"{speed.tokens_per_s:.1f}{ends}"
