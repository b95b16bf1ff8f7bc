"""Where the policies that were typed find prices, counts and fitted tables, and which of them are judged in sample.

A table that was fitted, or counts that were made, on the very texts that are replayed know the answers. That is fair
while one explores and not as a result, and which of the two it is nobody can tell from the files. So nothing is
refused; a note stands below the table, and a mark in the JSON. What a note rests on is the ``text_id`` that a file
holds. Counts of a file of texts hold its digest only, and a trace of the same prompts in another dtype has other ids:
where there is no note, nothing is proved.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from simlab.channels.needs import TraceCapabilities
from simlab.cost import CostTable
from simlab.errors import MissingChannelError, PolicyError, SimlabError, UsageError
from simlab.policies.artefacts import LEAST_WIDTH, Artefacts
from simlab.policies.costs.curves import cost_in_view, name_and_view
from simlab.policies.edges.ngram import NGramCounts, counts_from_rows
from simlab.policies.named.chain import most_drafted
from simlab.policies.parsing.parse import NamedPolicy, label_of, parse_policies
from simlab.policy import GivenPolicies, given_policies
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.prices import (
    Prices,
    check_models,
    cost_table_of,
    prices_for_trace,
    prices_of_batch,
    what_if_prices,
)
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.artefacts.kinds import find_packaged_config, read_model_config
from simlab.traces.artefacts.ngram import find_packaged_ngram, read_ngram_file
from simlab.traces.artefacts.table import find_packaged_table, read_table_file
from simlab.traces.format.manifest import same_tokenizer
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import EVERY_CHANNEL, Trace
from simlab.traces.results.rows import HINDSIGHT

AUTO = "auto"
"""As `simlab.policies.artefacts.AUTO`."""


_SLASHES = (
    "A path with slashes stands in double quotes, -p 'NAME:key=\"runs/FILE\"'; without them a/b lists two values."
)


class TraceArtefacts:
    """The artefacts of one trace and draft set; ``auto`` prices are those that speeds are predicted with.

    A file is read once, however many policies ask for it.

    Args:
        prices: those of the command.
        trace: whose models artefacts must be of; None where it is still to be recorded, so that only files
            can be named.
        draft: the draft set.
    """

    def __init__(self, prices: Prices, trace: Trace | None = None, draft: str | None = None) -> None:
        self._prices, self._trace, self._draft = prices, trace, draft
        self._models = None if trace is None or draft is None else _models(trace, draft)
        self._in_sample: set[str] = set()
        self.cost = cache(self._cost)
        self.ngram = cache(self._ngram)
        self.table = cache(self._table)
        self.target_config = cache(self._target_config)

    def min_width(self) -> int:
        """Candidates that the trace holds at each depth; of one that is still to be recorded what every trace holds."""
        if self._trace is None or self._draft is None:
            return LEAST_WIDTH
        return self._trace.manifest.draft_sets[self._draft].min_width

    def within_prices(self, budget: int) -> int:
        """A default budget, cut to what the prices reach: a chain of no given length drafts one block at most."""
        cost = self._prices.cost
        if cost is None or self._trace is None or self._draft is None:
            return budget
        depth = self._trace.manifest.draft_sets[self._draft].depth
        return budget if most_drafted(budget, depth) <= cost.most_drafted else cost.most_drafted

    def in_sample(self, policies: Sequence[NamedPolicy]) -> tuple[str, ...]:
        """The labels of those that use a table or counts of the very texts of the trace; see the module."""
        return tuple(
            policy.label
            for policy in policies
            if self._in_sample & set(getattr(policy.policy, "artefacts", {}).values())
        )

    def _note_source(self, artefact_id: str, text_id: str) -> None:
        """Remember an artefact that was made from the texts of the trace."""
        if self._trace is not None and text_id == self._trace.text_id:
            self._in_sample.add(artefact_id)

    def _cost(self, name: str) -> tuple[CostTable, str]:
        file, view = name_and_view(name)
        cost = cost_in_view(self._measured(file), view)
        return cost, cost.cost_id

    def _measured(self, name: str) -> CostTable:
        """Prices as they are, of a file or those of the command."""
        if name == AUTO:
            if self._prices.cost is None:
                raise PolicyError(
                    "it weighs tokens against latency, and there is no latency profile. "
                    f"{self._prices.no_latency_reason}"
                )
            return self._prices.cost
        path = Path(name)
        with _explained(name):
            file = read_cost_file(path)
        if self._trace is not None and self._draft is not None:
            check_models(path, file, self._trace, self._draft)
        return cost_table_of(file, path)

    def _ngram(self, name: str) -> tuple[NGramCounts, str]:
        digest = None if self._trace is None else self._trace.manifest.tokenizer_digest
        again = "count one with `simlab train ngram --out FILE`, and name it: ngram=FILE"
        if name != AUTO:
            with _explained(name):
                file = read_ngram_file(name)
            if digest is not None and not same_tokenizer(file.tokenizer_digest, digest):
                raise PolicyError(f"{name} has the counts of another tokenizer's ids than the trace's; {again}")
        elif digest is None:
            raise PolicyError("it needs a 3-gram, and the models are not known yet; name a file: ngram=FILE")
        else:
            packaged = find_packaged_ngram(digest)
            if packaged is None:
                raise PolicyError(f"it needs a 3-gram, and none comes with simlab for this tokenizer; {again}")
            file = packaged
        self._note_source(file.ngram_id, file.source)
        return counts_from_rows(file.firsts, file.seconds, file.thirds, file.counts, file.vocab_size), file.ngram_id

    def _table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        again = f"fit one with `simlab train {kind} --out FILE`, and name it: table=FILE"
        if name != AUTO:
            with _explained(name):
                file = read_table_file(name, kind)
            if self._models is not None and not file.fits(*self._models):
                raise PolicyError(f"{name} was fitted with other models or another block than the trace's; {again}")
            self._note_source(file.table_id, file.text_id)
            return {**file.to_json(), "values": file.values}, file.table_id
        if self._models is None:
            raise PolicyError(f"it needs a table of {kind}, and the models are not known yet; name a file: table=FILE")
        packaged = find_packaged_table(kind, *self._models)
        if packaged is None:
            raise PolicyError(f"it needs a table of {kind}, and none comes with simlab for these models; {again}")
        self._note_source(packaged.table_id, packaged.text_id)
        return {**packaged.to_json(), "values": packaged.values}, packaged.table_id

    def _target_config(self, name: str) -> Mapping[str, object]:
        if name != AUTO:
            return read_model_config(name)
        again = "name the target's config.json, or the folder of its weights: target_config=FILE"
        if self._models is None:
            raise PolicyError(f"it needs the sizes of the target's layers, and the models are not known yet; {again}")
        packaged = find_packaged_config(self._models[0].digest)
        if packaged is None:
            raise PolicyError(
                f"it needs the sizes of the target's layers, and simlab does not know this target; {again}"
            )
        return packaged


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Where a name is of no file, say how paths are typed: a slash may have cut this one in two."""
    try:
        yield
    except SimlabError as error:
        raise error if Path(name).is_file() else type(error)(f"{error} {_SLASHES}") from error


def in_sample_note(labels: Sequence[str]) -> str:
    """What to know beside policies that are judged in sample; empty without any."""
    if not labels:
        return ""
    return (
        f"IN SAMPLE: {', '.join(labels)}.\n"
        "Tables or counts of theirs were made from the very texts that are replayed here, so they know the answers; "
        "report them on other prompts."
    )


def _models(trace: Trace, draft: str) -> tuple[ModelInfo, ModelInfo, int]:
    """Target, drafter and block."""
    draft_set = trace.manifest.draft_sets[draft]
    return trace.manifest.target, draft_set.model, draft_set.block_size


# What a study is asked for: policies, and the prices at which their rounds are reckoned.


@dataclass(frozen=True, slots=True)
class PoliciesOnMachine:
    """Policies, and the prices at which their rounds are reckoned; a machine each.

    Attributes:
        prices: of that machine.
        policies: in the order asked.
        left_out: policies that the prices do not reach, in a sentence; empty: none.
        in_sample: labels of those that were fitted on the very texts; see `simlab.studies.inputs.artefacts`.
    """

    prices: Prices
    policies: tuple[NamedPolicy, ...]
    in_sample: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def unpriced(self) -> dict[str, str]:
        """Why policies have no seconds where others have, a sentence each, by label."""
        reasons = {policy.label: self.prices.why_unpriced(policy.policy) for policy in self.policies}
        return {label: why for label, why in reasons.items() if why}

    def unpriced_note(self) -> str:
        """What to know beside policies without seconds; empty without any."""
        reasons: dict[str, list[str]] = {}
        for label, why in self.unpriced.items():
            reasons.setdefault(why, []).append(label)
        lines = [f"No seconds of {', '.join(labels)}: {why}" for why, labels in reasons.items()]
        return "\n".join([*([self.left_out] if self.left_out else []), *lines])


def priced_policies(
    typed: GivenPolicies,
    costs: Sequence[Path],
    trace: Trace,
    draft: str,
    limit: int | None = None,
    changes: Sequence[str] = (),
    batch: int | None = None,
    by_default: bool = False,
) -> list[PoliciesOnMachine]:
    """Policies as they were given, at the prices of each cost file; without one, at those that come with simlab.

    Each of ``changes`` adds, to each of these, a machine that nobody measured; see `simlab.policies.costs.what_if`.
    With ``batch`` all are prices of so many texts at a time. A file is read once. Plain decoding and the chain come
    first. What prices do not reach is left out where nobody asked for it by name (``by_default``), and of a grid; what
    the trace lacks, where nobody asked for it.
    """
    by_machine: dict[str | None, PoliciesOnMachine] = {}
    depth = trace.manifest.draft_sets[draft].depth
    for path in costs or (None,):
        measured = prices_for_trace(path, trace, draft, limit)
        for change in (None, *changes):
            prices = _changed(measured, change, batch)
            artefacts = TraceArtefacts(prices, trace, draft)
            held = trace.holds(draft)
            made, lacking = default_policies(typed, artefacts, held) if by_default else ([], ())
            policies = [*with_references(() if by_default else typed, artefacts), *made]
            policies, left_out = _within_reach(policies, typed, prices, depth, by_default)
            left_out = "\n".join([*filter(None, [left_out]), *(f"{sentence}." for sentence in lacking)])
            reaching = measured.reaching(largest_budget(policies, depth))
            if reaching is not measured:
                prices = _changed(reaching, change, batch)
            priced = PoliciesOnMachine(prices, tuple(policies), artefacts.in_sample(policies), left_out)
            by_machine.setdefault(prices.cost_id, priced)
    return list(by_machine.values())


def priced_recording(
    source: TraceSource | None,
    draft_set: str | None,
    typed: GivenPolicies,
    costs: Sequence[Path],
    limit: int | None = None,
    changes: Sequence[str] = (),
    batch: int | None = None,
    by_default: bool = False,
) -> tuple[Trace, str, list[PoliciesOnMachine]]:
    """The trace and the draft set that policies are replayed on, and the policies at their prices.

    Of several draft sets it is the only one that has all that the policies read. Where no trace was named, and the
    packaged sample lacks what a policy reads, it is the small packaged trace that has a draft set or a channel for
    every policy.

    Args:
        source: the trace, or where it is; None: a packaged one.
        draft_set: by name; None: the only one that fits.
        typed: policies.
        costs: cost files; none: those that come with simlab.
        limit: the first so many prompts only.
        changes: of the prices, for machines that nobody measured.
        batch: texts at a time.
        by_default: whether nobody asked for these policies.

    Raises:
        MissingChannelError: no draft set has what the policies read.
        UsageError: several have it, and none was named.
        SimlabError: a policy cannot be made, or trace, latency profile and options do not fit each other.
    """
    trace = opened(source, costs)

    def priced(trace: Trace, draft: str) -> tuple[Trace, str, list[PoliciesOnMachine]]:
        """The policies on a draft set that has what they read."""
        machines = priced_policies(typed, costs, trace, draft, limit, changes, batch, by_default)
        held = trace.holds(draft)
        for policy in (named.policy for machine in machines for named in machine.policies):
            check_needs(policy, held)
        return trace, draft, machines

    if draft_set is not None or len(trace.manifest.draft_sets) == 1:
        name = trace.draft_name(draft_set)
        try:
            return priced(trace, name)
        except MissingChannelError:
            if source is not None or draft_set is not None:
                raise
            return _fitting(opened(EVERY_CHANNEL, costs), priced)
    return _fitting(trace, priced)


Found = TypeVar("Found")


def _fitting(trace: Trace, priced: Callable[[Trace, str], Found]) -> Found:
    """What is made of the only draft set that has all that policies read; of an illustration, of the first."""
    fitting, lacking = dict[str, Found](), dict[str, SimlabError]()
    for name in trace.manifest.draft_sets:
        try:
            fitting[name] = priced(trace, name)
        except (MissingChannelError, PolicyError) as error:
            lacking[name] = error
    if not fitting and lacking:
        first, *others = lacking.values()
        if not others or all(str(error) == str(first) for error in others):
            raise first
        reasons = "; ".join(f"{name}: {error}" for name, error in lacking.items())
        raise MissingChannelError(f"no draft set of {trace.label} has all that these policies read. {reasons}")
    if len(fitting) > 1 and not trace.is_illustration:
        raise UsageError(
            f"{trace.location} holds the draft sets {', '.join(fitting)}; choose one with --draft-set NAME"
        )
    return next(iter(fitting.values()))


_LISTED = 3
"""Labels of policies that are left out, and named."""


def _within_reach(
    policies: Sequence[NamedPolicy], typed: GivenPolicies, prices: Prices, depth: int, by_default: bool
) -> tuple[list[NamedPolicy], str]:
    """The policies whose rounds all have a price, and a sentence on the others; one that was named alone stays.

    A round of it that has no price is refused when it is met. Prices that come with simlab, and were not asked for, are
    left out themselves where they end before a policy that was asked for.
    """
    cost = prices.cost
    if cost is None or (prices.is_shipped and not by_default):
        return list(policies), ""
    reached = {policy.label: most_drafted(policy.policy.budget, depth) <= cost.most_drafted for policy in policies}
    alone = () if by_default else [label_of(policy) for policy in given_policies(typed)]
    reaching = [policy for policy in policies if reached[policy.label] or policy.label in alone]
    beyond = [policy.label for policy in policies if policy not in reaching]
    if not beyond:
        return reaching, ""
    return reaching, (
        f"Left out: {_first_of(beyond)}, since {cost.label} ends at {cost.most_drafted:,} drafted tokens; "
        f"{cost.how_to_reach()}."
    )


def default_policies(
    typed: GivenPolicies, artefacts: TraceArtefacts, held: TraceCapabilities
) -> tuple[list[NamedPolicy], tuple[str, ...]]:
    """Those of a default set that can be made and read what a trace holds; and a sentence on others of each text."""
    policies, sentences = list[NamedPolicy](), list[str]()
    for text in given_policies(typed):
        try:
            made = parse_policies([text], artefacts)
        except PolicyError as error:
            sentences.append(f"Left out: {error}")
            continue
        lacking: dict[str, str] = {}
        for policy in made:
            try:
                check_needs(policy.policy, held)
            except MissingChannelError as error:
                lacking[policy.label] = str(error)
        policies += [policy for policy in made if policy.label not in lacking]
        if lacking:
            sentences.append(f"Left out: {_first_of(list(lacking))}, since {next(iter(lacking.values()))}")
    return policies, tuple(sentences)


def _first_of(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _LISTED:,} more" if len(labels) > _LISTED else ""
    return f"{', '.join(labels[:_LISTED])}{more}"


def _changed(prices: Prices, change: str | None, batch: int | None) -> Prices:
    """Prices of another machine, or of more texts at a time."""
    changed = what_if_prices(prices, change)
    return changed if batch is None else prices_of_batch(changed, batch)


def with_references(typed: GivenPolicies, artefacts: Artefacts | None = None) -> list[NamedPolicy]:
    """The policies that were asked for, after plain decoding and the whole chain where these were not.

    The hindsight bound may be asked for by name; it is no policy and is always there.
    """
    policies = parse_policies([policy for policy in given_policies(typed) if policy != HINDSIGHT], artefacts)
    ids = {policy.policy_id for policy in policies}
    return [policy for policy in parse_policies(["ar", "chain"]) if policy.policy_id not in ids] + policies


def largest_budget(policies: Sequence[NamedPolicy], depth: int) -> int:
    """The most tokens that any of the policies drafts in a round, and at least a whole block."""
    return max([depth, *(most_drafted(policy.policy.budget, depth) for policy in policies)])
