"""The cost file that prices a trace: the one that was asked for, or one that comes with simlab."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from simlab.analysis.table.text import NO_SPEEDUP, SPEEDUP, SPEEDUP_OVER_PASS
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.cost.table import EXAMPLE, IMPORTED, MEASURED, NO_CHANNELS
from simlab.errors import CostError
from simlab.policies.costs.curves import cost_table
from simlab.policies.costs.what_if import parse_what_if, what_if
from simlab.policies.named.chain import most_drafted
from simlab.policy import MADE_WITH, AnyPolicy, is_plain_decoding, routes_of
from simlab.real_runner.execution.executions import CUDA_GRAPHS, rows_for
from simlab.studies.inputs.trace import longest_context
from simlab.traces.artefacts.cost import CostFile, find_packaged, gap_around, packaged_for, read_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import Trace

_NO_FILE = (
    "No speeds: simlab ships no latency profile for these models and this block; measure one with `simlab profile`."
)


@dataclass(frozen=True, slots=True)
class Prices:
    """What rounds cost, as a study was asked to reckon it.

    Attributes:
        cost: None where there are no prices.
        heading: whose prices they are, in one line.
        no_latency_reason: a sentence for the reader where there are none.
        batch: texts at a time.
        longest_context: tokens before the last root of any text that is priced.
        is_shipped: whether they come with simlab, and were not asked for by name.
        file: the samples that they come from; None where there are none.
        caveats: what nobody stated or timed, a sentence each; they belong beside every speed.
        unpriced: why the trace's channels have no price, a sentence each, by name; only where one has none.
    """

    cost: CostTable | None
    heading: str
    no_latency_reason: str
    batch: int = 1
    longest_context: int = 0
    is_shipped: bool = False
    file: CostFile | None = None
    unpriced: Mapping[str, str] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()

    @property
    def cost_id(self) -> str | None:
        """The content id of the cost file; None where there are no prices."""
        return None if self.cost is None else self.cost.cost_id

    @property
    def speedup_note(self) -> str:
        """What speedups by these prices are over, in a sentence."""
        if self.file is None or (not self.file.lacks_plain and self.file.has_plain):
            return "\n".join([SPEEDUP, *self.caveats])
        return "\n".join([SPEEDUP_OVER_PASS if self.file.has_plain else NO_SPEEDUP, *self.caveats])

    def why_unpriced(self, policy: AnyPolicy) -> str:
        """Why a policy has no seconds where others have, in a sentence; empty where it has, or none has."""
        if self.cost is None:
            return ""
        if self.file is not None and not self.file.has_plain and is_plain_decoding(policy):
            return (
                f"{self.cost.label} has no latency of autoregressive decoding, so there is no speedup over it; import "
                "the timings again with a pass of one token, or with --plain-s SECONDS."
            )
        reasons = [self.unpriced[need.name] for need in policy.needs.channels if need.name in self.unpriced]
        if reasons:
            return reasons[0]
        try:
            self.cost.charged(policy)
        except CostError as error:
            return str(error)
        return ""

    def cost_of(self, policy: AnyPolicy) -> CostTable | None:
        """What the rounds of a policy cost, its channels among it; None where there are no prices of one of them."""
        return None if self.cost is None or self.why_unpriced(policy) else self.cost.charged(policy)

    def gap_of(self, policy: AnyPolicy, num_drafted: float) -> tuple[int, int] | None:
        """The measured node counts between which a policy's size lies where nobody timed it, see `gap_around`.

        A router has the sizes of its routes: its mean is of rounds that are as large as none of it.

        Args:
            policy: whose rounds are priced.
            num_drafted: drafted tokens of its rounds, the mean.
        """
        if self.file is None or self.cost is None:
            return None
        depth = self.cost.block_size - 1
        sizes = [float(most_drafted(route.budget, depth)) for route in routes_of(policy)] or [num_drafted]
        gaps = (gap_around(self.file.node_counts, size) for size in sizes)
        return next((gap for gap in gaps if gap is not None and not self._is_one_pass(*gap)), None)

    def _is_one_pass(self, low: int, high: int) -> bool:
        """Whether rounds of both ends, and so of all sizes in between, are one captured pass of as many rows."""
        assert self.file is not None
        return self.file.execution == CUDA_GRAPHS and rows_for(low + 1) == rows_for(high + 1)

    def reaching(self, most_drafted: int, by_default: bool = False) -> "Prices":
        """These prices, or none with a sentence that says why: shipped ones that end too early are left out.

        Prices that were asked for by name stay: what they do not reach is refused when it is met.

        Args:
            most_drafted: tokens that a round may draft.
            by_default: nobody asked for rounds of so many tokens, so no prices are refused for them.
        """
        cost = self.cost
        if cost is None or not (self.is_shipped or by_default):
            return self
        if self.longest_context <= cost.longest_context and most_drafted <= cost.most_drafted:
            return self
        return no_prices(_too_short(cost, self.longest_context, most_drafted))


_NAMED = 3
"""Policies that are named in a note."""


def not_chosen_note(policies: Sequence[str], cost: CostTable) -> str:
    """A sentence on policies that are not chosen, since nobody timed rounds of their size, see `Prices.gap_of`.

    Args:
        policies: their labels, at least one, each with the measured node counts around its size.
        cost: the prices, which say how to get more.
    """
    more = f" and {len(policies) - _NAMED:,} more" if len(policies) > _NAMED else ""
    return (
        f"Not chosen, whatever is predicted: {', '.join(policies[:_NAMED])}{more}. Nobody timed rounds of their size, "
        f"only those of the drafted tokens in brackets; {cost.how_to_reach()}."
    )


def no_prices(why: str = "") -> Prices:
    """Prices of a study that has none, and a sentence that says why."""
    return Prices(None, "none", why)


def prices_for_trace(path: Path | None, trace: Trace, draft: str, limit: int | None = None) -> Prices:
    """The prices in a cost file, or without one those that come with simlab for the models of a trace.

    A shipped file that does not reach far enough is left out, and ``no_latency_reason`` says so; a file that was
    asked for is refused.

    Args:
        path: the cost file that was asked for.
        trace: what is to be priced.
        draft: the draft set.
        limit: the first so many prompts only.
    """
    manifest = trace.manifest
    draft_set, longest = manifest.draft_sets[draft], longest_context(trace, limit)
    if path is not None:
        file = read_cost_file(path)
        check_models(path, file, trace, draft)
        cost = cost_table_of(file, path)
        cost.curve(PLAIN, longest)
        return prices_of_file(file, cost, trace, draft, longest)
    shipped = find_packaged(manifest.target, draft_set.model, draft_set.block_size)
    if shipped is None:
        return no_prices(_NO_FILE)
    prices = prices_of_file(shipped, cost_table_of(shipped), trace, draft, longest)
    return replace(prices, is_shipped=True).reaching(draft_set.depth)


def cost_table_of(file: CostFile, path: Path | None = None) -> CostTable:
    """What rounds cost by a finished cost file."""
    missing = len(file.missing())
    if missing:
        where = f"the cost file {file.cost_id}" if path is None else str(path)
        raise CostError(
            f"{where} is not finished: {missing} of its {len(tuple(file.cells()))} cells were not measured; "
            f"finish it with `simlab profile --out {'FILE' if path is None else shlex.quote(str(path))} --resume`."
        )
    units = {name: channel.units for name, channel in file.channels.items()}
    samples = file.samples
    if not file.has_plain:  # a number is needed there; `Prices.why_unpriced` lets no speed be made of it
        samples = {**samples, **{(PLAIN, 0, context): samples["verify", 0, context] for context in file.contexts}}
    table = cost_table(file.cost_id, file.contexts, file.node_counts, samples, file.visits, units)
    shipped = path is not None and not path.is_file()
    origin = EXAMPLE if shipped and file.is_of_others else IMPORTED if file.is_imported else MEASURED
    return replace(table, block_size=file.block_size, origin=origin, name="" if path is None else str(path))


def notes_on(trace: Trace, prices: Iterable[Prices]) -> list[str]:
    """What to know beside figures, a sentence each: prompts left out, why there are no speeds, what nobody timed."""
    of_prices = [sentence for price in prices for sentence in (price.no_latency_reason, *price.caveats)]
    return list(dict.fromkeys(filter(None, [trace.left_out, *of_prices])))


def what_if_prices(prices: Prices, change: str | None) -> Prices:
    """The latency profile of a hypothetical machine, not measured; None: nothing is changed."""
    if change is None:
        return prices
    asked = parse_what_if(change)
    if prices.cost is None:
        raise CostError(f"--what-if changes a latency profile, and there is none. {prices.no_latency_reason}")
    cost = what_if(prices.cost, asked)
    heading = f"WHAT IF {asked.label} ({cost.cost_id}), hypothetical, not measured; from {prices.heading}"
    return replace(prices, cost=cost, heading=heading, batch=prices.batch * asked.batch)


def prices_of_batch(prices: Prices, batch: int) -> Prices:
    """The prices of so many texts at a time; of one text they are reckoned as `simlab.policies.costs.what_if` does."""
    if prices.cost is None or prices.batch == batch:
        return prices
    if prices.batch != 1:
        raise CostError(
            f"--batch {batch} needs a latency profile of {batch} texts at a time, and this is of {prices.batch}: "
            f"{prices.heading}; measure with `simlab profile --batch {batch}`, or give a profile of one text"
        )
    return what_if_prices(prices, f"batch={batch}")


def prices_of_file(file: CostFile, cost: CostTable, trace: Trace, draft: str, longest: int) -> Prices:
    """The prices of a cost file for a trace, whose models it is taken to be of or which borrows them.

    Args:
        file: finished.
        cost: what rounds cost by it.
        trace: what is to be priced.
        draft: the draft set.
        longest: tokens before the last root of any text that is priced.
    """
    if file.is_of_others:
        cost = replace(cost, block_size=trace.manifest.draft_sets[draft].block_size)
    measured = [] if file.is_imported else [file.threads_text]
    parts = [file.device, *measured, file.dtype, *([] if file.is_imported else [file.execution])]
    if "torch" in file.versions:
        parts.append(f"torch {file.versions['torch']}")
    if file.temperature != trace.manifest.sampling.temperature:
        parts.append(f"temperature {file.temperature:g}")
    if file.batch != 1:
        parts.append(f"speeds of each of {file.batch} texts at a time")
    names = packaged_for(trace.manifest.target, trace.manifest.draft_sets[draft].model, file.block_size)
    own = next((name for name, packaged in names.items() if packaged.cost_id == cost.cost_id), cost.name)
    others = f"; also packaged: {', '.join(name for name in names if name != own)}" if own in names else ""
    heading, unpriced = f"{', '.join(parts)} (cost {cost.cost_id}{others})", _unpriced(file, cost.label, trace)
    if file.is_of_others and file.models_are_stated:
        heading = f"PRICES OF OTHERS' MODELS, not of this trace's: {file.target.name} on {heading}"
    elif file.is_of_others:
        heading = f"MODELS NOT STATED, {heading}"
    heading = "".join([f"{own}: " if own else "", heading, *(f"; {clause}" for clause in _heading_caveats(file))])
    # Another channel of the same name has no price here, whoever asks.
    channels = {name: channel for name, channel in cost.channels.items() if name not in unpriced}
    return Prices(
        replace(cost, channels=channels),
        heading,
        "",
        file.batch,
        longest,
        file=file,
        unpriced=unpriced,
        caveats=tuple(_caveats(file)),
    )


def _free_stages(file: CostFile) -> list[str]:
    """Stages that nobody timed, and that cost nothing."""
    timed = {stage for (stage, _, _), seconds in file.samples.items() if any(seconds)}
    return [stage for stage in GRID_STAGES if stage not in timed] if not file.is_of_whole_rounds else []


def _heading_caveats(file: CostFile) -> list[str]:
    """What nobody timed, and what else to know first of measured seconds, in clauses for a heading."""
    if not file.is_imported:
        return list(file.notes[:1])
    free = _free_stages(file)
    clauses = [f"not timed, so free here: {', '.join(free)}"] if free else []
    if not file.has_plain:
        return [*clauses, "autoregressive decoding not timed"]
    return [*clauses, "a pass of one token stands for autoregressive decoding"] if file.lacks_plain else clauses


def _caveats(file: CostFile) -> list[str]:
    """What nobody stated or timed, a sentence each; what speedups are over says `Prices.speedup_note`."""
    if not file.is_imported:
        return []
    free = _free_stages(file)
    caveats = [] if file.models_are_stated else ["It is not stated of which models the timings are."]
    if file.is_of_others and file.models_are_stated:
        caveats = [f"The timings are of other models than the trace's: {file.target.name}."]
    return (
        [*caveats, f"Speeds are too high: nobody timed {', '.join(free)}, which cost nothing here."]
        if free
        else caveats
    )


def _unpriced(file: CostFile, label: str, trace: Trace) -> dict[str, str]:
    """Why channels of a trace have no price, a sentence each, by name."""
    reasons = {}
    for name, info in trace.manifest.channels.items():
        measured = file.channels.get(name)
        command = f"`simlab profile --channel {name}=CHECKPOINT"
        if file.is_imported and measured is None:
            reasons[name] = f"{label} {NO_CHANNELS}."
        elif measured is None:
            reasons[name] = (
                f"{label} does not say what the channel {name} takes; measure it with {command} "
                "--resume --out FILE`, which adds it to a file of this machine."
            )
        elif (difference := measured.difference(info.kind, info.producer, info.settings)) is not None:
            reasons[name] = (
                f"the channel {name} of {label} was measured with {difference} as the trace's; measure "
                f"the trace's with {command}{_typed(info.kind, info.settings)} --out FILE`."
            )
    return reasons


def _typed(kind: str, settings: Mapping[str, object]) -> str:
    """The settings that are typed behind a checkpoint, as a channel of a trace has them."""
    return "".join(f",{key}={settings[key]}" for key in MADE_WITH[kind] if key in settings)


def _too_short(cost: CostTable, longest_context: int, most_drafted: int) -> str:
    return (
        f"No speeds: {cost.name or 'the packaged latency profile'} reaches {cost.longest_context:,} tokens of "
        f"context and {cost.most_drafted:,} drafted tokens; this needs {longest_context:,} and {most_drafted:,}.\n"
        f"To get them, {cost.how_to_reach('--contexts ... --node-counts ...')}, and give the file with --cost."
    )


def check_models(path: Path, file: CostFile, trace: Trace, draft: str) -> None:
    """Refuse prices of other models; examples, which are of others' models by what they say, may be borrowed."""
    draft_set = trace.manifest.draft_sets[draft]
    if not file.is_of_others and not file.fits(trace.manifest.target, draft_set.model, draft_set.block_size):
        raise CostError(
            f"{path} has latencies of {_models(file.target, file.drafter, file.block_size)}; the trace is of "
            f"{_models(trace.manifest.target, draft_set.model, draft_set.block_size)}. Give a cost file of the trace's "
            "models, or make one with `simlab profile`."
        )


def _models(target: ModelInfo, drafter: ModelInfo, block_size: int) -> str:
    return f"{model_name(target)} with the drafter {model_name(drafter)}, block {block_size}"


def model_name(model: ModelInfo) -> str:
    """Name and the beginning of the digest, since other weights may have the same name."""
    return f"{model.name} ({model.digest.removeprefix('sha256:')[:8]})"


# Prices of several batch sizes: those of cost files, and what-ifs where there is none.


HOW = (
    "Give a cost file of each batch size with --cost (`simlab profile` measures one text at a time; "
    "`simlab import --batch N` takes timings of N texts), or ask for a what-if with --batch 1,2,4"
)


def priced_batches(
    costs: Sequence[Path], batches: Sequence[int] | None, trace: Trace, draft: str, limit: int | None
) -> list[tuple[int, Prices, bool]]:
    """Prices by batch size, ascending; without batch sizes those of the cost files, which may be one.

    Args:
        costs: cost files; none: the shipped one.
        batches: batch sizes; None: those of the files.
        trace: whose texts are priced.
        draft: the draft set.
        limit: the first so many prompts only; None: all.

    Returns:
        Each batch size, its prices, and whether they were worked out from those of one text.
    """
    measured = measured_prices(costs, trace, draft, limit)
    if batches is None:
        return [(batch, measured[batch], False) for batch in sorted(measured)]
    return [
        (batch, measured[batch], False) if batch in measured else (batch, _worked_out(batch, measured), True)
        for batch in batches
    ]


def measured_prices(costs: Sequence[Path], trace: Trace, draft: str, limit: int | None) -> dict[int, Prices]:
    """Prices of cost files, by the number of texts at a time that they are of; without a file those shipped."""
    by_batch: dict[int, Prices] = {}
    for path in costs or (None,):
        prices = prices_for_trace(path, trace, draft, limit)
        batch = 1 if path is None else read_cost_file(path).batch
        if batch in by_batch:
            raise CostError(
                f"two cost files have the latencies of {batch} texts at a time; give one of each batch size"
            )
        by_batch[batch] = prices
    return by_batch


def _worked_out(batch: int, measured: dict[int, Prices]) -> Prices:
    if 1 not in measured:
        raise CostError(
            f"no latency profile of {batch} texts at a time, and none of one text to work it out from; give that with "
            "--cost"
        )
    if measured[1].cost is None:
        raise CostError(f"a batch size needs a latency profile. {measured[1].no_latency_reason}")
    return what_if_prices(measured[1], f"batch={batch}")
