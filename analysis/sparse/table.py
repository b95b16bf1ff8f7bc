"""What a sparse log predicts beside the dense trace and the runner's own measurement: one row per policy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.sparse.logs import ESTIMATORS
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.summaries import Scalar
from simlab.arrays import Longs

DENSE, MEASURED = "dense", "measured"
MEASURES = ("tokens_per_s", "acceptance_length", "acceptance_length_macro")


@dataclass(frozen=True, slots=True, eq=False)
class SparseLog:
    """What the rounds of one policy alone would have recorded, and what that predicts.

    Attributes:
        policy: the recorded one, as it stands in tables.
        num_rows: recorded roots.
        num_roots: all roots.
        predicted: by `DENSE` and each of the estimators, result rows of all policies; the rounds of a mean over rows
            commit tokens twice or never.
        measured: result rows of the runner on the same prompts; None: there are none.
        starts_recorded: by policy, the share of its rounds that begin at a recorded root.
        borrowed: by policy, sums over all its other rounds, as `simlab.analysis.sparse.logs.borrowed_rows` has them.
    """

    policy: str
    num_rows: int
    num_roots: int
    predicted: Mapping[str, pl.DataFrame]
    measured: pl.DataFrame | None
    starts_recorded: Mapping[str, float]
    borrowed: Mapping[str, Longs]


@dataclass(frozen=True, slots=True)
class SparseFigure:
    """One policy by one measure.

    Attributes:
        recorded: the policy whose rounds were recorded.
        starts_recorded: the share of this policy's rounds that begin at a recorded root.
        values: by `DENSE`, `MEASURED` and the estimators; NaN where it is not known.
        against_dense: each estimator's ratio to the dense prediction, paired over prompts.
        against_measured: each prediction's ratio to the measurement, likewise; empty without one.
        gains: by the names of ``values``, the ratio to the recorded policy; of that policy itself empty.
    """

    recorded: str
    policy: str
    measure: str
    prompts: int
    starts_recorded: float
    values: Mapping[str, float]
    against_dense: Mapping[str, Comparison]
    against_measured: Mapping[str, Comparison]
    gains: Mapping[str, Comparison]

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        found: dict[str, Scalar] = {
            "recorded_policy": self.recorded,
            "policy": self.policy,
            "measure": self.measure,
            "prompts": self.prompts,
            "starts_recorded_share": _finite(self.starts_recorded),
        }
        for name in (DENSE, *ESTIMATORS, MEASURED):
            found[name] = _finite(self.values.get(name, math.nan))
        for name, comparison in self.against_dense.items():
            found |= _ratio(f"{name}_over_dense", comparison)
            found |= {f"{name}_p_adjusted": _finite(comparison.p_adjusted), f"{name}_differs": comparison.differs}
        for name, one in self.against_measured.items():
            found |= _ratio(f"{name}_over_measured", one)
        for name, one in self.gains.items():
            found |= _ratio(f"{name}_gain", one)
        return found


@dataclass(frozen=True, slots=True)
class SparseChoice:
    """Which policy each source of figures would have chosen by a measure, and what the choice costs.

    Attributes:
        source: one of the estimators, `DENSE` or `MEASURED`.
        lost_share: by the dense prediction, the share that the choice lacks of the best.
    """

    recorded: str
    measure: str
    source: str
    policy: str
    lost_share: float

    def row(self) -> dict[str, Scalar]:
        """The choice as flat scalars, as a script reads them."""
        return {name: getattr(self, name) for name in ("recorded", "measure", "source", "policy", "lost_share")}


def sparse_figures(log: SparseLog, policies: Sequence[str]) -> list[SparseFigure]:
    """By each measure that is known, a figure per policy, on the prompts that all sources have.

    Args:
        log: of one recorded policy.
        policies: as they stand in tables; the recorded one is among them.
    """
    runs, places = _runs(log, policies)
    shared, _ = shared_runs(list(runs))
    bias = [(places[name, one], places[DENSE, one]) for one in policies for name in ESTIMATORS]
    ran = [
        (places[name, one], places[MEASURED, one])
        for one in policies
        for name in (DENSE, *ESTIMATORS)
        if (MEASURED, one) in places
    ]
    gain = [
        (places[name, one], places[name, log.policy])
        for name, one in places
        if one != log.policy and (name, log.policy) in places
    ]
    tables = [_by_names(compare_runs(shared, pairs)) if pairs else {} for pairs in (bias, ran, gain)]
    names = {place: runs[place].name for place in places.values()}
    found = []
    for measure in MEASURES:
        for policy in policies:
            figure = _figure(log, policy, measure, tables, {key: names[place] for key, place in places.items()})
            if not math.isnan(figure.values[DENSE]):
                found.append(figure)
    return found


def sparse_choices(figures: Sequence[SparseFigure]) -> list[SparseChoice]:
    """What each source would have chosen, of the figures of one recorded policy, by each measure."""
    found = []
    for measure in dict.fromkeys(one.measure for one in figures):
        some = [one for one in figures if one.measure == measure]
        best = max(one.values[DENSE] for one in some)
        for source in (DENSE, *ESTIMATORS, MEASURED):
            known = [one for one in some if not math.isnan(one.values.get(source, math.nan))]
            if known:
                top = max(known, key=lambda one: one.values[source])
                lost = 1 - top.values[DENSE] / best
                found.append(SparseChoice(some[0].recorded, measure, source, top.policy, lost))
    return found


def borrowed_row(log: SparseLog, policy: str) -> dict[str, Scalar]:
    """Flat scalars of what a policy's rounds at no recorded root borrow; a mean is None without such rounds."""
    found: dict[str, Scalar] = {"recorded_policy": log.policy, "policy": policy}
    for place, (rounds, by_row, by_own) in zip(("earlier", "later"), log.borrowed[policy].tolist(), strict=True):
        found |= {
            f"{place}_rounds": rounds,
            f"{place}_borrowed": by_row / rounds if rounds else None,
            f"{place}_own": by_own / rounds if rounds else None,
        }
    return found


def num_left_out(log: SparseLog, policies: Sequence[str]) -> int:
    """Prompts of the trace that the measurement has not, or has with other turns or samples."""
    runs, places = _runs(log, policies)
    missing = shared_runs(list(runs))[1]
    return len(missing[runs[places[DENSE, policies[0]]].name])


def _runs(log: SparseLog, policies: Sequence[str]) -> tuple[list[PolicyRun], dict[tuple[str, str], int]]:
    """A run for each source and policy, and where it is, by both."""
    sources = dict(log.predicted)
    if log.measured is not None:
        sources[MEASURED] = log.measured
    runs: list[PolicyRun] = []
    places: dict[tuple[str, str], int] = {}
    for source, rows in sources.items():
        for policy in policies:
            own = rows.filter(pl.col("policy") == policy)
            if own.height:
                places[source, policy] = len(runs)
                runs.append(PolicyRun(f"{policy} ({source})", own, own.clear()))
    return runs, places


def _by_names(comparisons: Sequence[Comparison]) -> dict[tuple[str, str, str], Comparison]:
    return {(one.measure, one.first, one.second): one for one in comparisons}


def _figure(
    log: SparseLog,
    policy: str,
    measure: str,
    tables: Sequence[Mapping[tuple[str, str, str], Comparison]],
    names: Mapping[tuple[str, str], str],
) -> SparseFigure:
    bias, ran, gain = tables

    def held(
        table: Mapping[tuple[str, str, str], Comparison], first: str, second: tuple[str, str]
    ) -> Comparison | None:
        key = (measure, names.get((first, policy), ""), names.get(second, ""))
        return table.get(key)

    against_dense = {name: held(bias, name, (DENSE, policy)) for name in ESTIMATORS}
    against_measured = {name: held(ran, name, (MEASURED, policy)) for name in (DENSE, *ESTIMATORS)}
    gains = {name: held(gain, name, (name, log.policy)) for name in (DENSE, *ESTIMATORS, MEASURED)}
    dense = _known(against_dense)
    values = {name: one.first_value for name, one in dense.items()}
    values[DENSE] = next((one.second_value for one in dense.values()), math.nan)
    measured = _known(against_measured)
    values[MEASURED] = next((one.second_value for one in measured.values()), math.nan)
    prompts = next((one.prompts for one in dense.values()), 0)
    share = log.starts_recorded[policy]
    return SparseFigure(
        recorded=log.policy,
        policy=policy,
        measure=measure,
        prompts=prompts,
        starts_recorded=share,
        values=values,
        against_dense=dense,
        against_measured=measured,
        gains=_known(gains),
    )


def _known(comparisons: Mapping[str, Comparison | None]) -> dict[str, Comparison]:
    return {name: one for name, one in comparisons.items() if one is not None and not math.isnan(one.ratio)}


def _ratio(name: str, comparison: Comparison) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {name: _finite(comparison.ratio)}
    for kind, interval in (("ci", comparison.ratio_interval), ("price", comparison.price_interval)):
        found |= {f"{name}_{kind}_low": _finite(interval.low), f"{name}_{kind}_high": _finite(interval.high)}
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
