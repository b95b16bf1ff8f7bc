"""What is compared: the rows of a result file, or those of a trace that is replayed for it."""

from dataclasses import dataclass
from pathlib import Path

from simlab.errors import UsageError
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.priced_policies import PricedPolicies
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.replay.run import ReplayOptions, replay_trace
from simlab.traces.reader import open_trace
from simlab.traces.results.rows import Results, read_results

WITHOUT_CHOICE = ("chain", "ddtree:budget=16")
"""What traces are replayed under where no policy is named."""

_NO_POLICIES = ("ar", "hindsight", "hindsight-budget")
"""Names of rows that are a reference or a bound; they are compared only if they are asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked of one of the two places.

    Attributes:
        place: a result file or a trace.
        policies: as they were typed; none: all of a result file, or `WITHOUT_CHOICE` of a trace.
        kind: ``predicted`` or ``measured``; None: whichever there is.
        prices: of a result file the cost id, of a trace a cost file; None: whichever there are.
        draft: of a trace the draft set; None: the only one.
        limit: of a trace, the first prompts only.
    """

    place: str
    policies: tuple[str, ...]
    kind: str | None = None
    prices: str | None = None
    draft: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of one kind, at one machine's prices.

    Attributes:
        heading: what it is, in a line.
        labels: of the policies that are to be compared.
    """

    heading: str
    rows: "Results"
    labels: tuple[str, ...]

    def of(self, label: str) -> "Results":
        """The rows of a policy."""
        return self.rows.filter(self.rows["policy"] == label)

    def plain(self) -> "Results":
        """The rows of plain decoding."""
        return self.rows.filter(self.rows["name"] == "ar")


def open_place(wanted: Wanted) -> Place:
    """The rows of a result file, or of a trace replayed under the policies.

    Raises:
        SimlabError: there is neither, or what is wanted of it is not there.
    """
    if Path(wanted.place).is_file():
        return _of_results(wanted)
    return _of_trace(wanted)


def _of_results(wanted: Wanted) -> Place:

    if wanted.draft is not None or wanted.limit is not None:
        raise UsageError(f"--draft and --limit are for traces; {wanted.place} is a result file")
    rows = read_results(wanted.place)
    if rows.is_empty():
        raise UsageError(f"{wanted.place} holds no rows")
    if wanted.kind is not None:
        rows = rows.filter(rows["kind"] == wanted.kind)
    kinds = sorted(set(rows["kind"]))
    if len(kinds) != 1:
        there = "both predicted and measured rows; choose with --kind" if kinds else f"no {wanted.kind} rows"
        raise UsageError(f"{wanted.place} holds {there}")
    if wanted.prices is not None:
        rows = rows.filter(rows["cost_id"].eq_missing(wanted.prices))
    ids = list(rows["cost_id"].unique(maintain_order=True))
    if len(ids) != 1:
        listed = ", ".join(str(one) for one in read_results(wanted.place)["cost_id"].unique(maintain_order=True))
        raise UsageError(f"{wanted.place} holds rows at the prices {listed}; choose one with --cost ID")
    parts = [wanted.place, kinds[0], *([] if ids[0] is None else [f"prices {ids[0]}"])]
    return Place(", ".join(parts), rows, _labels(rows, wanted))


def _of_trace(wanted: Wanted) -> Place:

    if wanted.kind == "measured":
        raise UsageError(f"{wanted.place} is no result file, and a replay measures nothing; leave out --kind")
    trace = open_trace(wanted.place)
    draft = trace.draft_name(wanted.draft)
    path = None if wanted.prices is None else Path(wanted.prices)
    shelf = TraceArtefacts(prices_for_trace(path, trace, draft, wanted.limit), trace, draft)
    policies = parse_policies(wanted.policies or WITHOUT_CHOICE, shelf)
    prices = replay_prices(path, trace, draft, policies, wanted.limit)
    plain = [one for one in parse_policies(["ar"]) if one.policy_id not in {each.policy_id for each in policies}]
    asked = PricedPolicies(prices, (*plain, *policies))
    rows = replay_trace(trace, draft, [asked], wanted.limit, ReplayOptions(best_budgets=False))
    heading = f"{wanted.place}, replayed, draft set {draft}"
    return Place(f"{heading}, prices {prices.heading}", rows, tuple(one.label for one in policies))


def _labels(rows: "Results", wanted: Wanted) -> tuple[str, ...]:
    """Those that were asked for, or all but references and bounds."""
    table = list(rows.select("policy", "name").unique(maintain_order=True).iter_rows())
    there = [label for label, _ in table]
    for label in wanted.policies:
        if label not in there:
            raise UsageError(f"{wanted.place} has no policy {label!r}; it has {', '.join(there)}")
    return wanted.policies or tuple(label for label, name in table if name not in _NO_POLICIES)


def pairs_of(first: Place, second: Place, same: bool, chosen: bool, against: bool) -> list[tuple[str, str]]:
    """Which policy of the first place is held against which of the second.

    Args:
        first: a place.
        second: another, or the same again.
        same: whether it is the same.
        chosen: whether policies were asked for.
        against: whether all are held against the one policy of the second.

    Raises:
        UsageError: it is not clear which are meant.
    """
    ours, theirs = first.labels, second.labels
    if against and len(theirs) != 1:
        raise UsageError(f"--against takes one policy; got {', '.join(theirs)}")
    if against:
        return [(one, theirs[0]) for one in ours if not (same and one == theirs[0] and len(ours) > 1)]
    if same:
        if len(ours) < 2 or (len(ours) > 2 and not chosen):
            raise UsageError(
                f"{first.heading} has the policies {', '.join(ours)}; name those to compare: -p ONE -p OTHER, or "
                "-p ONE --against OTHER"
            )
        return [(ours[0], other) for other in ours[1:]]
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    found = [(one, one) for one in ours if one in theirs]
    if not found:
        raise UsageError(
            f"no policy is in both: A has {', '.join(ours)}, B has {', '.join(theirs)}; name one of each: "
            "-p ONE --against OTHER"
        )
    return found
