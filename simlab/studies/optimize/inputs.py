"""What ``simlab optimize`` searches, and where: dev and evaluation prompts, prices, the entries, the objective."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from simlab.analysis.optimize.candidate_sums import ACCEPTANCE_LENGTH, TOKENS_PER_S, WORST_CASE, prompt_hash
from simlab.analysis.table.prompt_sums import Prompt
from simlab.errors import CostError, TraceError, UsageError
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, prices_for_trace
from simlab.studies.inputs.trace import prompt_of
from simlab.traces.artefacts.optimum import PromptSource
from simlab.traces.reader import Trace

DEFAULT_BUDGET = 256
"""The largest tree that is tried where nothing is named."""


@dataclass(frozen=True)
class PromptSet:
    """Some prompts of a trace, at the prices of each machine.

    Attributes:
        name: ``dev`` or ``evaluation``.
        trace: which holds them.
        draft: the draft set.
        prompts: dataset and name of each.
        prices: of each machine; one without a cost table where only counts are wanted.
    """

    name: str
    trace: Trace
    draft: str
    prompts: tuple[Prompt, ...]
    prices: tuple[Prices, ...]

    @cached_property
    def artefacts(self) -> tuple[TraceArtefacts, ...]:
        """What policies are made with, for each machine."""
        return tuple(TraceArtefacts(price, self.trace, self.draft) for price in self.prices)

    @cached_property
    def depth(self) -> int:
        """Tokens that the draft set looks ahead."""
        return self.trace.manifest.draft_sets[self.draft].depth

    @cached_property
    def most_drafted(self) -> int:
        """As far as trace and prices reach."""
        priced = [price.cost.most_drafted for price in self.prices if price.cost is not None]
        return min([self.trace.manifest.draft_sets[self.draft].exact_budget, *priced])

    def sequences(self, indices: Sequence[int] | None = None) -> dict[int, int]:
        """Which of the prompts each sequence is of, by its index; of the prompts at these places, or all."""
        wanted = range(len(self.prompts)) if indices is None else indices
        number = {self.prompts[index]: at for at, index in enumerate(wanted)}
        keys = ((record.index, prompt_of(record)) for record in self.trace.sequences())
        return {index: number[key] for index, key in keys if key in number}

    def read_from(self) -> PromptSource:
        """Where the prompts come from, for the file."""
        return PromptSource(self.trace.text_id, self.trace.draft_ids[self.draft], frozenset(self.prompts))

    def heading(self) -> str:
        """Number and source of the prompts, in a line."""
        datasets = Counter(dataset for dataset, _ in self.prompts)
        of = ", ".join(f"{num} {name}" for name, num in datasets.items())
        num = len(self.prompts)
        return f"{num} prompt{'' if num == 1 else 's'} ({of}) of {self.trace.label} (text {self.trace.text_id})"


@dataclass(frozen=True, slots=True)
class SearchInputs:
    """What was asked for, read and checked.

    Attributes:
        dev: on which the policies are searched.
        evaluation: on which the choice is reported.
        objective: one of `simlab.traces.artefacts.optimum.OBJECTIVES`.
        node_cap: drafted tokens of a round, at most; None: any.
        split: how one trace was split; empty where there are two.
    """

    dev: PromptSet
    evaluation: PromptSet
    objective: str
    node_cap: int | None
    split: str


def search_inputs(
    trace: Trace,
    report_on: Trace | None,
    costs: Sequence[Path],
    draft_name: str | None,
    objective: str | None,
    node_cap: int | None,
) -> SearchInputs:
    """The prompts to choose on and to report on, at the prices of each machine."""
    chosen = _objective(objective, len(costs), node_cap)
    draft = trace.draft_name(draft_name)
    prices = _prices(costs, trace, draft, chosen)
    if report_on is None:
        dev, evaluation = _halves(trace)
        split = (
            "One trace: its prompts are split by a hash of dataset and name, the turns and samples of a prompt staying "
            "together; the choice is made on one half and reported on the other."
        )
        other, other_draft, other_prices = trace, draft, prices
    else:
        other, split = report_on, ""
        other_draft = other.draft_name(draft_name)
        _check_same_models(trace, draft, other, other_draft)
        _check_no_shared_prompts(trace, other)
        other_prices = _prices(costs, other, other_draft, chosen)
        _check_same_prices(prices, other_prices, other)
        dev, evaluation = _prompts(trace), _prompts(other)
    return SearchInputs(
        PromptSet("dev", trace, draft, dev, prices),
        PromptSet("evaluation", other, other_draft, evaluation, other_prices),
        chosen,
        node_cap,
        split,
    )


def _objective(asked: str | None, machines: int, node_cap: int | None) -> str:
    objective = asked or (WORST_CASE if machines > 1 else TOKENS_PER_S)
    if objective == WORST_CASE and machines < 2:
        raise UsageError("--objective worst_case is over several machines; give --cost at least twice")
    if objective != WORST_CASE and machines > 1:
        raise UsageError(
            f"--objective {objective} reads one cost file; got {machines}; leave out --objective for the worst"
        )
    if objective == ACCEPTANCE_LENGTH and node_cap is None:
        raise UsageError(
            "--objective acceptance_length grows with every node, so it needs a limit: add --node-cap 16, say"
        )
    return objective


def _prices(costs: Sequence[Path], trace: Trace, draft: str, objective: str) -> tuple[Prices, ...]:
    by_cost: dict[str | None, Prices] = {}
    for path in costs or (None,):
        prices = prices_for_trace(path, trace, draft)
        if prices.cost is None and objective != ACCEPTANCE_LENGTH:
            raise CostError(
                f"the objective is tokens per second, and there is no latency profile. {prices.no_latency_reason} Or "
                "choose by --objective acceptance_length --node-cap N."
            )
        if prices.cost_id in by_cost:
            raise UsageError(
                f"--cost {path} holds the same latencies as one before it, which would count once; give each once"
            )
        by_cost[prices.cost_id] = prices
    return tuple(by_cost.values())


def _prompts(trace: Trace) -> tuple[Prompt, ...]:
    """In the order of the trace."""
    prompts = tuple(dict.fromkeys(map(prompt_of, trace.sequences())))
    if not prompts:
        raise TraceError(f"{trace.location} holds no sequences, so there is nothing to search or report on")
    return prompts


def _halves(trace: Trace) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Which half a prompt is in depends on its dataset and its name alone."""
    halves: tuple[list[Prompt], list[Prompt]] = ([], [])
    for prompt in _prompts(trace):
        halves[prompt_hash(prompt) & 1].append(prompt)
    if not all(halves):
        raise TraceError(
            f"{trace.location} has too few prompts to be split into dev and evaluation; choose on others: --dev-trace "
            "DIR"
        )
    return tuple(halves[0]), tuple(halves[1])


def _check_same_models(trace: Trace, draft: str, other: Trace, other_draft: str) -> None:
    first, second = trace.manifest, other.manifest
    ours, theirs = first.draft_sets[draft], second.draft_sets[other_draft]
    laws = [(sampling.temperature, sampling.top_p, sampling.top_k) for sampling in (first.sampling, second.sampling)]
    is_same = {
        "the target": first.target.is_same(second.target),
        "the drafter": ours.model.is_same(theirs.model),
        "the block": ours.block_size == theirs.block_size,
        "the sampling": laws[0] == laws[1],
        "the dtype": first.dtype == second.dtype,
    }
    differing = [name for name, same in is_same.items() if not same]
    if differing:
        raise TraceError(
            f"{other.location} differs from {trace.location} in {' and '.join(differing)}; what is chosen on one says "
            "little of the other. Record both with the same models and settings."
        )


def _check_no_shared_prompts(trace: Trace, other: Trace) -> None:
    names = set(map(prompt_of, other.sequences()))
    texts = {record.prompt.token_ids.tobytes() for record in other.sequences()}
    shared = [
        prompt_of(record)
        for record in trace.sequences()
        if prompt_of(record) in names or record.prompt.token_ids.tobytes() in texts
    ]
    if shared:
        num = len(set(shared))
        raise TraceError(
            f"{trace.location} and {other.location} share {num} prompt{'' if num == 1 else 's'}, such as "
            f"{'/'.join(shared[0])}; a choice must be reported on prompts on which it was not made. Record others, or "
            "leave out --dev-trace, and the prompts of one trace are split."
        )


def _check_same_prices(prices: Sequence[Prices], others: Sequence[Prices], other: Trace) -> None:
    if [price.cost_id for price in prices] != [price.cost_id for price in others]:
        raise CostError(
            f"the packaged latency profile for {other.location} is another than that for --dev-trace; name one file "
            "for both: --cost FILE"
        )
