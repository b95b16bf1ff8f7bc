"""Measured stage seconds by context and drafted tokens, and what is charged of them to a policy's rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from simlab.arrays import Doubles, Longs, read_only
from simlab.columns import RoundColumns
from simlab.cost.stages import CHANNEL, GRID_STAGES, PLAIN, STAGES, StageSeconds
from simlab.errors import CostError
from simlab.jit import borrowing_kernel, kernel
from simlab.policy import AnyPolicy, ChannelNeed, Needs, is_plain_decoding, routes_of

MEASURED, IMPORTED, EXAMPLE = "measured", "imported", "example"
"""Where prices come from, which decides what gives more of them."""

NO_CHANNELS = (
    "is of imported timings, which say nothing of what this channel takes; take policies that read none. Trees of an "
    "EAGLE-3 head get a price from one pass of it: `simlab import --draft-s SECONDS --trace TRACE`, where the trace's "
    "draft set is the head's chain"
)

# Rows of a pass in which nodes of a tree carry masks, and what as many rows cost.


def rows_of_pass(num_drafted: Longs, masked: int, num_masks: int) -> Longs:
    """Rows of the passes that verify: the nodes, and k masks behind each of the first ones.

    A tree of the root alone carries masks behind it: a root without a draft is read so that the next one has some.

    Args:
        num_drafted: int64 ``[N]``, the root not counted.
        masked: the number of the last node that carries masks, the root's being 0; -1: none does.
        num_masks: k.

    Returns:
        int64 ``[N]``.

    >>> rows_of_pass(np.array([0, 4, 4]), 0, 4).tolist(), rows_of_pass(np.array([4]), 9, 4).tolist()
    ([5, 9, 9], [25])
    """
    carriers = np.where(num_drafted == 0, 1, np.minimum(masked, num_drafted) + 1)
    rows: Longs = num_drafted + 1 + num_masks * carriers
    return rows


def seconds_by_rows(seconds: Doubles, masked: int, num_masks: int) -> Doubles:
    """Seconds of passes in which the first nodes carry masks, from those of passes in which all do.

    How rows are laid out is taken to matter little: linear between passes of more and of fewer rows, and never below
    the one with the fewest.

    Args:
        seconds: float64 ``[C, N + 1]``, by context and drafted tokens; a pass of n of them has (n + 1)(k + 1) rows.
        masked: see `rows_of_pass`.
        num_masks: k.

    Returns:
        float64 ``[C, N + 1]``.
    """
    num_drafted = np.arange(seconds.shape[1])
    measured = (num_drafted + 1) * (num_masks + 1)
    rows = rows_of_pass(num_drafted, masked, num_masks)
    return np.array([np.interp(rows, measured, row) for row in seconds], np.float64)


class ReadsChannels(Protocol):
    """A policy, or an order of nodes: what says which channels it reads."""

    @property
    def needs(self) -> Needs:
        """What is read of a draft."""
        ...


class StageTable(NamedTuple):
    """Some stages of a `CostTable`, as kernels read them.

    Attributes:
        contexts: int64 ``[C]``, ascending.
        seconds: float64 ``[C, n_max + 1, P]``, P the number of stages; 0 without prices.
    """

    contexts: Longs
    seconds: Doubles

    def beside(self, other: "StageTable") -> "StageTable":
        """The columns of this table and then those of another of the same grid."""
        return StageTable(self.contexts, np.concatenate([self.seconds, other.seconds], axis=2))


NO_STAGES = StageTable(np.zeros(1, np.int64), np.zeros((1, 1, 0), np.float64))
"""Nothing is priced."""


@dataclass(frozen=True, slots=True, eq=False)
class ChannelSeconds:
    """What making one channel takes, by its units: see `simlab.policy.ChannelNeed.units`.

    Attributes:
        units: int64 ``[U]``, those that were measured, ascending from 1 or above.
        seconds: float64 ``[C, U]``, by context and units.
    """

    units: Longs
    seconds: Doubles

    def __post_init__(self) -> None:
        units, seconds = np.array(self.units, np.int64), np.array(self.seconds, np.float64)
        if units.ndim != 1 or len(units) == 0 or units[0] < 1 or np.any(np.diff(units) <= 0):
            raise ValueError(f"units of a channel must rise from 1 or above; got {units.tolist()}")
        if seconds.ndim != 2 or seconds.shape[1] != len(units):
            raise ValueError(f"seconds of a channel must have a column for each of its units; got {seconds.shape}")
        if not np.all(np.isfinite(seconds) & (seconds >= 0)):
            raise ValueError("seconds of a channel must be finite and not negative")
        object.__setattr__(self, "units", read_only(units))
        object.__setattr__(self, "seconds", read_only(seconds))

    def at(self, units: int) -> Doubles:
        """Seconds at each context, float64 ``[C]``; linear between units, which lie within those measured."""
        return np.array([np.interp(units, self.units, row) for row in self.seconds], np.float64)

    def times(self, factor: float) -> "ChannelSeconds":
        """With all seconds multiplied."""
        return ChannelSeconds(self.units, self.seconds * factor)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Seconds of each stage by context length and number of drafted tokens, for one text at a time.

    Attributes:
        cost_id: content id of the measurement that the seconds come from.
        contexts: int64 ``[C]``, tokens before the root, ascending.
        seconds: for each of ``STAGES`` float64 ``[C, n_max + 1]``; column ``n`` is that of ``n``
            drafted tokens, whose pass runs ``n + 1``. For ``PLAIN`` float64 ``[C, 1]``. ``CHANNEL`` may be left out,
            and is then 0; `charged` sets it.
        draws: the same prices from samples drawn again, which show how noisy they are; of the same grid. Empty: that is
            not known.
        channels: what making a channel takes, by its name.
        as_asked: float64 ``[C, U + 1]``, all channels of a policy where a round asks for so many branches, 0 to U, and
            pays for those; None: what is paid is not known to depend on that. `charged` sets it.
        block_size: slots of the timed drafter's block; of a target that drafts for itself a node and its masks.
        name: of the file, as it was asked for; empty: it has none.
        origin: MEASURED by simlab; IMPORTED timings, to which their owner adds rows; EXAMPLE, which others measured
            with their models, so that nobody here can measure more.
    """

    cost_id: str
    contexts: Longs
    seconds: Mapping[str, Doubles]
    draws: tuple["CostTable", ...] = ()
    channels: Mapping[str, ChannelSeconds] = field(default_factory=dict)
    as_asked: Doubles | None = None
    block_size: int = 1
    origin: str = MEASURED
    name: str = ""

    def __post_init__(self) -> None:
        contexts = np.array(self.contexts, np.int64)
        if contexts.ndim != 1 or len(contexts) == 0 or contexts[0] < 0 or np.any(np.diff(contexts) <= 0):
            raise ValueError(f"contexts must rise from 0 or above; got {contexts.tolist()}")
        if {*self.seconds, CHANNEL} != {*STAGES, PLAIN}:
            raise ValueError(
                f"seconds must be given for {', '.join(GRID_STAGES)} and {PLAIN}; got {sorted(self.seconds)}"
            )
        seconds = {stage: np.array(values, np.float64) for stage, values in self.seconds.items()}
        seconds.setdefault(CHANNEL, np.zeros_like(seconds["verify"]))
        width = seconds["verify"].shape[-1] if seconds["verify"].ndim == 2 else 0
        for stage, values in seconds.items():
            shape = (len(contexts), 1 if stage == PLAIN else width)
            if values.shape != shape or width == 0:
                raise ValueError(f"seconds of {stage} must have shape {shape}; got {values.shape}")
            if not np.all(np.isfinite(values) & (values >= 0)):
                raise ValueError(f"seconds of {stage} must be finite and not negative")
        if any(not np.array_equal(draw.contexts, contexts) or draw.most_drafted != width - 1 for draw in self.draws):
            raise ValueError("prices from samples drawn again must be of the same contexts and drafted tokens")
        if any(len(channel.seconds) != len(contexts) for channel in self.channels.values()):
            raise ValueError(f"seconds of a channel must be given for each of the {len(contexts)} contexts")
        object.__setattr__(self, "contexts", read_only(contexts))
        object.__setattr__(self, "seconds", {stage: read_only(values) for stage, values in seconds.items()})

    def __repr__(self) -> str:
        return f"CostTable({self.cost_id})"

    @property
    def label(self) -> str:
        """What sentences call it: the file as it was asked for, else its id."""
        return self.name or f"the cost file {self.cost_id}"

    @property
    def most_drafted(self) -> int:
        """The largest number of drafted tokens that has a price."""
        return int(self.seconds["verify"].shape[1]) - 1

    @property
    def longest_context(self) -> int:
        """The most tokens before the root that have a price."""
        return int(self.contexts[-1])

    def how_to_reach(self, option: str = "--node-counts", measure: str = "measure more") -> str:
        """What gives latencies of more than there are, in a clause that may stand behind "or".

        Args:
            option: of ``simlab profile``, which measures more.
            measure: what that does, where it can be done.
        """
        if self.origin == EXAMPLE:
            return "take another cost file: this one is an example that others measured, and it ends there"
        if self.origin == IMPORTED:
            if option == "--contexts":
                return (
                    "add rows at longer contexts to the timings that it was made of, and `simlab import` them again "
                    "(an engine's table, which says no contexts, with --trace of this trace)"
                )
            return "add rows of more nodes to the timings that it was made of, and `simlab import` them again"
        return f"{measure} with `simlab profile {option}`"

    def charged(self, policy: ReadsChannels) -> "CostTable":
        """This table for the rounds of one policy or order: what its channels take is the stage ``CHANNEL``.

        Of a channel that is paid as it is asked for, that stage has all that is declared, and ``as_asked`` each number.
        Where a channel is read and no drafter, drafting takes nothing. Where a policy says which nodes carry masks, a
        round verifies as many rows as that makes. Any other policy without channels has this table itself, and so has a
        router, whose rounds pay for the route that they take: see `charged_route`.
        """
        routes = routes_of(policy)
        for route in routes:
            self.charged_route(policy, route)
        return self._with_channels(policy.needs, () if routes else policy.needs.made)

    def charged_route(self, router: ReadsChannels, route: ReadsChannels) -> "CostTable":
        """As `charged`, for those rounds of a router that one of its routes serves.

        What the router reads before anything is drafted is made in each round, whatever route it then takes.
        """
        return self._with_channels(route.needs, tuple(dict.fromkeys((*route.needs.made, *router.needs.predicted))))

    def _with_channels(self, needs: Needs, made: tuple[ChannelNeed, ...]) -> "CostTable":
        """This table for rounds that need a draft or none, and for which some channels are made."""
        table = _charged(self, made, needs.draft) if made else self
        return table if needs.masked is None else _masked(table, needs.masked, self.block_size - 1)

    def curve(self, stage: str, context: int, batch: int = 1) -> Doubles:
        """Seconds of a stage by the number of drafted tokens.

        Linear between contexts; below the first context that of the first.

        Args:
            stage: one of ``STAGES``, or ``PLAIN``.
            context: tokens before the root.
            batch: texts at a time.

        Returns:
            float64 ``[most_drafted + 1]``; ``[1]`` for ``PLAIN``.
        """
        if batch != 1:
            raise CostError(f"latencies are measured for one text at a time; asked for {batch}. Ask for a batch of 1.")
        numbers = np.arange(self._rows(stage).shape[1])
        return self.at(stage, np.full(len(numbers), context, np.int64), numbers)

    def at(self, stage: str, contexts: Longs, num_drafted: Longs) -> Doubles:
        """Seconds of a stage for many rounds; entry ``i`` is ``curve(stage, contexts[i])[num_drafted[i]]``.

        Args:
            stage: one of ``STAGES``, or ``PLAIN`` with no token drafted.
            contexts: int64 ``[R]``.
            num_drafted: int64 ``[R]``, the root not counted.

        Returns:
            float64 ``[R]``.
        """
        return self.sums((stage,), contexts, num_drafted, np.arange(1, len(contexts) + 1))[:, 0]

    def sums(
        self,
        stages: Sequence[str],
        contexts: Longs,
        num_drafted: Longs,
        ends: Longs | None = None,
        num_requested: Longs | None = None,
    ) -> Doubles:
        """The sums of `at` over the rounds of each text, added in their order.

        Args:
            stages: those that are paid.
            contexts: int64 ``[R]``.
            num_drafted: int64 ``[R]``, the root not counted.
            ends: int64 ``[S]``, where the rounds of each text end; None: there is one text.
            num_requested: int64 ``[R]``, branches that were asked for; None: channels cost what is declared.

        Returns:
            float64 ``[S, P]``.
        """
        table = self.stages(stages)
        self._check(table.seconds.shape[1], contexts, num_drafted)
        ends = np.array([len(contexts)], np.int64) if ends is None else ends
        sums = _sum_seconds(table, contexts, num_drafted, ends)
        if num_requested is not None and CHANNEL in stages:
            asked = _asked_stages(self.contexts, [self])
            sums[:, list(stages).index(CHANNEL)] = _sum_seconds(asked, contexts, num_requested, ends)[:, 0]
        return sums

    def stages(self, stages: Sequence[str]) -> StageTable:
        """Some stages, for kernels."""
        rows = [self._rows(stage) for stage in stages]
        width = min((row.shape[1] for row in rows), default=1)
        seconds = np.empty((len(self.contexts), width, len(rows)), np.float64)
        for index, row in enumerate(rows):
            seconds[:, :, index] = row[:, :width]
        return StageTable(self.contexts.copy(), seconds)

    def draw_sums(
        self,
        stages: Sequence[str],
        contexts: Longs,
        num_drafted: Longs,
        ends: Longs,
        num_requested: Longs | None = None,
    ) -> Doubles:
        """What the rounds of each text cost at each of the ``draws``, all paid stages together.

        Args:
            stages: those that are paid.
            contexts: int64 ``[R]``.
            num_drafted: int64 ``[R]``, the root not counted; both within the table.
            ends: int64 ``[S]``, where the rounds of each text end.
            num_requested: int64 ``[R]``, as `sums` has them.

        Returns:
            float64 ``[S, len(draws)]``.
        """
        if num_requested is None or CHANNEL not in stages:
            return _sum_seconds(self.draw_stages(stages), contexts, num_drafted, ends)
        others = _sum_seconds(
            self.draw_stages([stage for stage in stages if stage != CHANNEL]), contexts, num_drafted, ends
        )
        return others + _sum_seconds(_asked_stages(self.contexts, self.draws), contexts, num_requested, ends)

    def draw_stages(self, stages: Sequence[str]) -> StageTable:
        """What some stages cost together, a column for each of the ``draws``, for kernels."""
        columns = [sum(draw._rows(stage) for stage in stages) for draw in self.draws]
        shape = (len(self.contexts), self._rows(stages[0]).shape[1], 0)
        seconds = np.stack(columns, axis=-1) if columns else np.zeros(shape)
        return StageTable(self.contexts.copy(), np.ascontiguousarray(seconds, np.float64))

    def _check(self, width: int, contexts: Longs, num_drafted: Longs) -> None:
        most, longest = int(num_drafted.max(initial=0)), int(contexts.max(initial=0))
        if most >= width:
            raise CostError(
                f"a round drafts {most} tokens, and {self.label} has latencies up to "
                f"{width - 1}; {self.how_to_reach()}."
            )
        if longest > self.longest_context:
            raise CostError(
                f"a round has {longest:,} tokens before its root, and {self.label} has latencies up to "
                f"{self.longest_context:,}; {self.how_to_reach('--contexts', 'measure longer ones')}."
            )

    def _rows(self, stage: str) -> Doubles:
        if stage not in self.seconds:
            raise ValueError(f"stage must be one of {', '.join(STAGES)} and {PLAIN}; got {stage!r}")
        return self.seconds[stage]


@lru_cache(maxsize=64)  # one table for all policies that read the same, so that they are priced together
def _charged(cost: CostTable, needs: tuple[ChannelNeed, ...], with_draft: bool) -> CostTable:
    each_context = np.sum([_channel_seconds(cost, need) for need in needs], axis=0)
    column = np.repeat(each_context[:, None], cost.most_drafted + 1, axis=1)
    draws = tuple(_charged(draw, needs, with_draft) for draw in cost.draws)
    draft = cost.seconds["draft"] if with_draft else np.zeros_like(cost.seconds["draft"])
    seconds = {**cost.seconds, "draft": draft, CHANNEL: column}
    return replace(cost, seconds=seconds, draws=draws, as_asked=_as_asked(cost, needs))


def _masked(cost: CostTable, masked: int, num_masks: int) -> CostTable:
    seconds = {**cost.seconds, "verify": seconds_by_rows(cost.seconds["verify"], masked, num_masks)}
    return replace(cost, seconds=seconds, draws=tuple(_masked(draw, masked, num_masks) for draw in cost.draws))


def _as_asked(cost: CostTable, needs: tuple[ChannelNeed, ...]) -> Doubles | None:
    """See `CostTable.as_asked`; where nothing is asked for the channel takes nothing, and the others what they do."""
    asked = next((need for need in needs if need.as_asked), None)
    if asked is None:
        return None
    others = sum((_channel_seconds(cost, need) for need in needs if need != asked), np.zeros(len(cost.contexts)))
    rest = dict(asked.least)
    by_units = [
        replace(asked, least=tuple((rest | {"branches": units}).items())) for units in range(1, asked.units + 1)
    ]
    return np.stack([others, *(others + _channel_seconds(cost, need) for need in by_units)], axis=1)


def _asked_stages(contexts: Longs, tables: Sequence[CostTable]) -> StageTable:
    """What branches cost by how many were asked for, a column for each of some charged tables."""
    columns = [table.as_asked for table in tables if table.as_asked is not None]
    if len(columns) < len(tables):
        raise ValueError("branches are paid as they are asked for by a table that was charged with the policy's needs")
    return StageTable(contexts.copy(), np.ascontiguousarray(np.stack(columns, axis=-1), np.float64))


def _channel_seconds(cost: CostTable, need: ChannelNeed) -> Doubles:
    """What a channel takes at each context, float64 ``[C]``."""
    measure = f"measure it with `simlab profile --channel {need.name}=CHECKPOINT"
    channel = cost.channels.get(need.name)
    if channel is None and cost.origin == IMPORTED:
        raise CostError(f"{cost.label} {NO_CHANNELS} (asked for: {need.name}).")
    if channel is None:
        raise CostError(
            f"{cost.label} does not say what the channel {need.name} takes; {measure} --resume --out "
            "FILE`, which adds it to a file of this machine."
        )
    if not channel.units[0] <= need.units <= channel.units[-1]:
        raise CostError(
            f"the channel {need.name} is read with {need.units} {need.units_of}, and {cost.label} has "
            f"latencies of {', '.join(map(str, channel.units.tolist()))}; {measure} --units {need.units} --resume "
            "--out FILE`."
        )
    return channel.at(need.units)


@borrowing_kernel
def add_seconds(table: StageTable, context: int, num_drafted: int, sums: Doubles) -> None:
    """Add what one round costs.

    Args:
        table: with prices for as many drafted tokens.
        context: tokens before the root; linear between measured ones, constant outside.
        num_drafted: the root not counted.
        sums: float64 ``[P]``, of each stage, to be added to.
    """
    contexts, seconds, high = table.contexts, table.seconds, 0
    while high < contexts.size - 1 and contexts[high] < context:
        high += 1
    low = max(high - 1, 0)
    width = float(max(contexts[high] - contexts[low], 1))
    share = min(max((context - contexts[low]) / width, 0.0), 1.0)
    for stage in range(sums.size):
        sums[stage] += seconds[low, num_drafted, stage] * (1.0 - share) + seconds[high, num_drafted, stage] * share


@kernel
def _sum_seconds(table: StageTable, contexts: Longs, num_drafted: Longs, ends: Longs) -> Doubles:
    sums = np.zeros((ends.size, table.seconds.shape[2]), np.float64)
    start = 0
    for text in range(ends.size):
        for index in range(start, ends[text]):
            add_seconds(table, contexts[index], num_drafted[index], sums[text])
        start = ends[text]
    return sums


# The rounds of one text, priced one text at a time: what the engine's sums are held against.


def price(policy: AnyPolicy, rounds: RoundColumns, prompt_length: int, cost: CostTable) -> StageSeconds:
    """What the rounds of one text cost, summed.

    Plain decoding pays the seconds of its own fastest path, all of them as ``verify_s``; a policy that needs no drafter
    pays no ``draft_s``, and one that reads no channel no ``channel_s``. A router's rounds pay what their route pays,
    plain decoding there a pass of the root alone. Neither prefill nor catching up is in it.

    Args:
        policy: whose rounds they are.
        rounds: of one text.
        prompt_length: tokens of the prompt, so that a root at ``t`` has ``prompt_length + t`` before it.
        cost: what a stage costs.
    """
    routes = routes_of(policy)
    if routes:
        total = StageSeconds()
        for index, route in enumerate(routes):
            own = rounds.of_route(index)
            own = own if route.needs.billed_by_use is not None else replace(own, num_requested=None)
            total += price_rounds(own, prompt_length, cost.charged_route(policy, route), route.needs.draft)
        return total
    if is_plain_decoding(policy):
        sums = cost.sums((PLAIN,), rounds.positions + prompt_length, rounds.num_drafted)
        return StageSeconds(verify_s=float(sums[0, 0]))
    return price_rounds(rounds, prompt_length, cost.charged(policy), with_draft=policy.needs.draft)


def price_rounds(rounds: RoundColumns, prompt_length: int, cost: CostTable, with_draft: bool) -> StageSeconds:
    """What rounds of drafting and verifying cost, whoever chose their trees.

    Args:
        rounds: of one text.
        prompt_length: tokens of the prompt.
        cost: what a stage costs.
        with_draft: whether a drafter was run in each round.
    """
    paid = STAGES if with_draft else STAGES[1:]
    contexts = rounds.positions + prompt_length
    sums = cost.sums(paid, contexts, rounds.num_drafted, num_requested=rounds.num_requested)[0].tolist()
    return StageSeconds(**{f"{stage}_s": seconds for stage, seconds in zip(paid, sums, strict=True)})
