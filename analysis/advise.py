"""What to do at one batch size: draft nothing, a chain, or a tree, by verdicts of paired comparisons.

The simplest choice stands unless a verdict moves it: a chain is taken where it is significantly faster than
autoregressive decoding, a tree where it is significantly faster than what is taken without it. Every sentence is
computed from these verdicts.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, adjust_family, compare_pairs
from simlab.analysis.statistics.intervals import FEW_PROMPTS, UNKNOWN, finite
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE, BatchPrices, Summary, summarise
from simlab.analysis.table.text import aligned, ends
from simlab.errors import CostError
from simlab.untrusted.json_text import parse_json

NOTHING, CHAIN, TREE = "nothing", "chain", "tree"
"""What can be done, the simplest first; a tree stands for every policy that is no chain of a fixed length."""

MEASURE = "tokens_per_s"
AUTOREGRESSIVE = "autoregressive decoding"

FASTER, SLOWER, NOT_KNOWN = "faster", "slower", "not known"
PROMPTS, FEW, PRICES, MODEL = "", "few prompts", "prices", "model"
"""Why there is no verdict: prompts do not tell; they are fewer than an interval needs; the noise of the latency profile
is as large; or the result depends on how the prices of a batch were modelled."""


Gains = Mapping[tuple[str, str], Comparison]
"""Comparisons of tokens per second, by the more complex choice and the simpler one that it is over."""


@dataclass(frozen=True, slots=True)
class BatchAdvice:
    """What to do at one batch size.

    Prices of a batch size without a latency profile of its own are modelled, and so is autoregressive decoding there.
    It is never faster than one text alone: a policy counts as faster only where it also beats that bound.

    Attributes:
        of: the batch size and its prices.
        chain: the best chain; None where none could be priced.
        tree: the best of the other policies; None as well where there is none.
        gains: of each two that could be priced, paired over prompts.
        bounds: over autoregressive decoding of one text alone; none: the prices are measured.
        is_cut: whether the chain is the beginning of a larger block, which is not what engines draft.
        left_out: those of ``CHAIN`` and ``TREE`` that are compared at other batch sizes and have no price at this one.
    """

    of: BatchPrices
    chain: Summary | None
    tree: Summary | None
    gains: Gains
    bounds: Gains = field(default_factory=dict)
    is_cut: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """What could be compared, the simplest first."""
        known = {NOTHING: True, CHAIN: self.chain is not None, TREE: self.tree is not None}
        return tuple(choice for choice, is_there in known.items() if is_there)

    def verdict(self, more: str, less: str) -> bool | None:
        """Whether the more complex of two choices is faster (True) or slower (False); None: not known."""
        gain, bound = self.gains.get((more, less)), self.bounds.get((more, less))
        verdict = None if gain is None else gain.verdict
        return None if verdict and bound is not None and not bound.verdict else verdict

    def beats(self, choice: str, other: str) -> bool:
        """Whether a choice is significantly faster than another one."""
        return self.verdict(choice, other) is True or self.verdict(other, choice) is False

    @property
    def choice(self) -> str:
        """What to do: one of ``NOTHING``, ``CHAIN`` and ``TREE``."""
        simpler = CHAIN if self.beats(CHAIN, NOTHING) else NOTHING
        if not self.beats(TREE, simpler):
            return simpler
        return CHAIN if self.beats(CHAIN, TREE) else TREE

    @property
    def without_tree(self) -> str:
        """What to do where an engine drafts no trees."""
        return CHAIN if self.choice == CHAIN or self.beats(CHAIN, NOTHING) else NOTHING

    @property
    def over(self) -> str:
        """The simpler choice that the gain is over; empty where nothing is drafted."""
        return {NOTHING: "", CHAIN: NOTHING, TREE: self.without_tree}[self.choice]

    @property
    def gain(self) -> Comparison | None:
        """The choice over the next simpler one; None where nothing is drafted."""
        return self.gains[self.choice, self.over] if self.over else None

    @property
    def undecided(self) -> tuple[str, ...]:
        """The other choices that may be as fast."""
        behind = [choice for choice in self.compared if self.beats(self.choice, choice)]
        behind += [choice for choice in self.compared for known in behind if self.beats(known, choice)]
        return tuple(choice for choice in self.compared if choice not in (self.choice, *behind))

    @property
    def drafting(self) -> bool | None:
        """Whether drafting is faster than autoregressive decoding, or slower; None: not known."""
        if self.choice != NOTHING:
            return True
        return None if self.undecided or self.left_out else False

    def label(self, choice: str) -> str:
        """What a choice is called in a sentence: the policy, as it is typed."""
        summary = {CHAIN: self.chain, TREE: self.tree}.get(choice)
        return AUTOREGRESSIVE if summary is None else summary.policy

    def why_undecided(self, more: str, less: str) -> str:
        """Why there is no verdict on two choices: one of ``PROMPTS``, ``FEW``, ``PRICES`` and ``MODEL``."""
        gain = self.gains[more, less]
        if gain.prompts < FEW_PROMPTS:
            return FEW
        if gain.differs_by_prompts and gain.is_within_price_noise:
            return PRICES
        return MODEL if gain.verdict else PROMPTS

    @property
    def sure(self) -> str:
        """Whether every other choice is significantly slower; if not, why."""
        if not self.undecided:
            return f"no, {self.left_out[0]} left out" if self.left_out else "yes"
        reasons = dict.fromkeys(self.why_undecided(*self._pair(other)) for other in self.undecided)
        return ", ".join(["no", *filter(None, reasons)])

    def _pair(self, other: str) -> tuple[str, str]:
        """The choice and another one, the more complex one first."""
        return (self.choice, other) if (self.choice, other) in self.gains else (other, self.choice)

    def doubt(self) -> str:
        """What is not known at this batch size, in a sentence; empty where everything is."""
        if not self.undecided:
            return ""
        pairs = [self._pair(other) for other in self.undecided]
        more, less = max(pairs, key=lambda pair: self.gains[pair].ratio)
        gain, bound, why = self.gains[more, less], self.bounds.get((more, less)), self.why_undecided(more, less)
        first, second = f"Batch {self.of.batch}: {self.label(more)}", self.label(less)
        if why == MODEL and bound is not None:
            return (
                f"{first} is {ratio_text(gain)} times as fast as {second} by modelled prices, and "
                f"{ratio_text(bound)} if {self.of.batch} texts cost {second} no more than one text; measure this batch."
            )
        word = "slower" if gain.ratio < 1 else "faster"
        reason = {FEW: f"; fewer than {FEW_PROMPTS} prompts", PRICES: "; within the noise of the prices"}.get(why, "")
        return f"{first} is not significantly {word} than {second}: {ratio_text(gain)}{reason}."

    def row(self) -> dict[str, object]:
        """As a script reads it; what is not known is None."""
        row: dict[str, object] = {
            "batch": self.of.batch,
            "modelled": self.of.what_if,
            "prices": self.of.heading,
            "cost_id": self.of.cost_id,
            "do": self.choice,
            "policy": None if self.choice == NOTHING else self.label(self.choice),
            "without_tree": self.without_tree,
            "over": self.over or None,
            "gain": None if self.gain is None else finite(self.gain.ratio),
            **(UNKNOWN if self.gain is None else self.gain.ratio_interval).row("gain_ci"),
            "sure": self.sure,
            "chain": None if self.chain is None else self.chain.policy,
            "chain_is_cut": self.is_cut,
            "tree": None if self.tree is None else self.tree.policy,
        }
        names = {(CHAIN, NOTHING): "chain_speedup", (TREE, NOTHING): "tree_speedup", (TREE, CHAIN): "tree_over_chain"}
        for pair, name in names.items():
            gain = self.gains.get(pair)
            row[name] = None if gain is None else finite(gain.ratio)
            row |= (UNKNOWN if gain is None else gain.ratio_interval).row(f"{name}_ci")
            row[f"{name}_verdict"] = None if gain is None else _WORDS[self.verdict(*pair)]
            row |= (UNKNOWN if gain is None else gain.price_interval).row(f"{name}_price")
        return row | {f"tree_{name}": value for name, value in tree_needs(self.chain, self.tree).items()}


_WORDS = {True: FASTER, False: SLOWER, None: NOT_KNOWN}


def batch_advice(
    of: BatchPrices,
    rows: pl.DataFrame,
    chosen_on: pl.DataFrame,
    alone: pl.DataFrame | None = None,
    cut: Collection[str] = (),
    kinds: Sequence[str] = (),
) -> BatchAdvice:
    """Choose the fastest chain and the fastest other policy on some rows, and judge them on others.

    Each batch size is a family of three comparisons, whose p-values are adjusted.

    Args:
        of: the batch size.
        rows: result rows of all policies at its prices, autoregressive decoding among them.
        chosen_on: rows of the same policies that settings are chosen on; may be the same.
        alone: of autoregressive decoding of one text at measured prices, the bound of a modelled batch size.
        cut: labels of chains that are the beginning of a larger recorded block.
        kinds: of ``CHAIN`` and ``TREE`` those that are compared at any batch size.
    """
    summaries = {summary.policy: summary for summary in summarise(rows)}
    choosing = [summary for summary in summarise(chosen_on) if summary.policy in summaries and summary.name != BASELINE]
    if any(not summary.speed.tokens_per_s > 0 for summary in choosing):
        raise CostError(f"the latency profile {of.cost_id} gives no speed at batch size {of.batch}; measure it again")
    best: dict[str, Summary] = {}
    for kind in (CHAIN, TREE):
        of_kind = [summary for summary in choosing if (summary.name == CHAIN) is (kind == CHAIN)]
        if of_kind:
            best[kind] = summaries[max(of_kind, key=lambda summary: summary.speed.tokens_per_s).policy]
    plain = rows.filter(pl.col("name") == BASELINE)
    runs = {NOTHING: PolicyRun(NOTHING, plain, plain)}
    runs |= {
        kind: PolicyRun(summary.policy, rows.filter(pl.col("policy") == summary.policy), plain)
        for kind, summary in best.items()
    }
    pairs = [(kind, NOTHING) for kind in best] + [(TREE, CHAIN)] * (len(best) == 2)
    bounds = {} if alone is None else _compared(runs | {NOTHING: PolicyRun(NOTHING, alone, alone)}, pairs)
    return BatchAdvice(
        of,
        best.get(CHAIN),
        best.get(TREE),
        _compared(runs, pairs),
        {pair: bound for pair, bound in bounds.items() if pair[1] == NOTHING},
        CHAIN in best and best[CHAIN].policy in cut,
        tuple(kind for kind in kinds if kind not in best),
    )


def _compared(runs: Mapping[str, PolicyRun], pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Comparison]:
    """Each pair of runs, as one family."""
    if not pairs:
        return {}
    order = list(runs)
    indices = [(order.index(more), order.index(less)) for more, less in pairs]
    comparisons = compare_pairs(prompt_sums(list(runs.values())), [run.name for run in runs.values()], indices, MEASURE)
    return dict(zip(pairs, adjust_family(comparisons), strict=True))


def tree_needs(chain: Summary | None, tree: Summary | None) -> dict[str, float | None]:
    """What would make the tree as fast as the chain, all else as it is.

    With L the acceptance lengths, s the seconds of a round and n the drafted tokens of chain and tree, the tree pays
    where its L is above ``L_tree = L_chain s_tree / s_chain``, and where each drafted token that it has more than the
    chain costs less than ``s_chain (L_tree / L_chain - 1) / (n_tree - n_chain)``.

    Returns:
        ``length`` of the tree, and above which ``needed_length`` it pays; what a drafted token more takes for each of
        the texts, ``token_s``, and below which ``needed_token_s`` it pays, None where the tree drafts no more tokens;
        all None where one of the two is missing.
    """
    needs: dict[str, float | None] = dict.fromkeys(("length", "needed_length", "token_s", "needed_token_s"))
    if chain is None or tree is None:
        return needs
    (chain_s, chain_length, chain_nodes), (tree_s, tree_length, tree_nodes) = (
        _round(summary) for summary in (chain, tree)
    )
    more = tree_nodes - chain_nodes
    needs |= {"length": tree_length, "needed_length": chain_length * tree_s / chain_s}
    if more > 0:
        needs["token_s"] = (tree_s - chain_s) / more
        needs["needed_token_s"] = chain_s * (tree_length / chain_length - 1) / more
    return needs


def _round(summary: Summary) -> tuple[float, float, float]:
    """Mean seconds, committed and drafted tokens of a round."""
    totals = summary.totals
    seconds = totals.committed / summary.speed.tokens_per_s / totals.rounds
    return seconds, totals.acceptance_length, totals.nodes_per_round


# The page of ``simlab advise``: a line for each batch size, where drafting pays, and what is not known.


_HEADS = ("batch", "prices", "do this", "gain [95 %]", "over", "speedup", "sure")


def advice_table(batches: Sequence[BatchAdvice]) -> str:
    """A line for each batch size."""
    return aligned([_HEADS, *map(_cells, batches)], [True] * len(_HEADS))


def _cells(advice: BatchAdvice) -> tuple[str, ...]:
    speedup = advice.gains.get((advice.choice, NOTHING))
    return (
        str(advice.of.batch),
        "modelled" if advice.of.what_if else "measured",
        _done(advice),
        ratio_text(advice.gain),
        {NOTHING: "none"}.get(advice.over, advice.over) or "-",
        "1.00" if speedup is None else f"{speedup.ratio:.2f}",
        advice.sure,
    )


def _done(advice: BatchAdvice) -> str:
    """A chain by its length, with a star where it is cut; a tree by its size, or its name."""
    chosen = {CHAIN: advice.chain, TREE: advice.tree}.get(advice.choice)
    if chosen is None:
        return "draft nothing"
    size = drafted(chosen)
    if advice.choice == CHAIN:
        return f"chain of {size}" + "*" * advice.is_cut if size else f"{chosen.policy}, whole block"
    return f"tree of {size}" if size else chosen.name


def drafted(summary: Summary) -> int | None:
    """The length of a chain or the budget of a tree, as its settings say it; None: they do not."""
    settings = parse_json(summary.settings)
    size = settings.get("length" if summary.name == CHAIN else "budget") if isinstance(settings, dict) else None
    return size if isinstance(size, int) else None


def ratio_text(comparison: Comparison | None) -> str:
    """A ratio and its interval; an interval that is a point is left out."""
    if comparison is None:
        return "-"
    interval = "" if math.isnan(comparison.ratio_interval.low) else ends(comparison.ratio_interval)
    return f"{comparison.ratio:.2f} {interval}".rstrip()


def advice_sentences(batches: Sequence[BatchAdvice]) -> list[str]:
    """What stands below the table, from its verdicts: the trees by name, where drafting pays, and what is not known."""
    compared = [advice for advice in batches if len(advice.compared) > 1]
    drafting = [advice for advice in compared if advice.choice != NOTHING and TREE in advice.compared]
    trees = {a.of.batch: a.verdict(TREE, CHAIN) for a in drafting if CHAIN in a.compared}
    return [
        *_tree_names(batches),
        *([where_sentence("Drafting", {a.of.batch: a.drafting for a in compared})] if compared else []),
        *([where_sentence("A tree over the chain", trees)] if trees else []),
        *(sentence for advice in compared if (sentence := advice.doubt())),
        *[sentence for advice in drafting if (sentence := needs_sentence(advice))][:1],
    ]


def _tree_names(batches: Sequence[BatchAdvice]) -> list[str]:
    names: dict[str, list[str]] = {}
    for advice in batches:
        if advice.choice == TREE:
            names.setdefault(advice.label(TREE), []).append(str(advice.of.batch))
    listed = [f"{label} (batch {', '.join(batches)})" for label, batches in names.items()]
    return [f"Trees: {', '.join(listed)}."] if listed else []


def where_sentence(name: str, verdicts: Mapping[int, bool | None]) -> str:
    """At which batch sizes something is faster, slower or not known, and between which it stops paying.

    >>> where_sentence("Drafting", {1: True, 2: None, 4: False})
    'Drafting: faster at batch 1; slower at 4; not known at 2. It stops paying between 1 and 4.'

    Args:
        name: what is compared.
        verdicts: by batch size, of those that were compared; None: there is no verdict.
    """
    at = {
        word: sorted(batch for batch, verdict in verdicts.items() if verdict is wanted)
        for wanted, word in _WORDS.items()
    }
    parts = [f"{word} at {', '.join(map(str, batches))}" for word, batches in at.items() if batches]
    faster, slower = at[FASTER], at[SLOWER]
    stops = faster and slower and max(faster) < min(slower)
    end = f" It stops paying between {max(faster)} and {min(slower)}." if stops else ""
    return f"{name}: {'; '.join(parts).replace(' at ', ' at batch ', 1)}.{end}"


def no_tree_sentence(batches: Sequence[BatchAdvice], who: str) -> str:
    """What it costs to have no tree, in one number, where it costs the most; empty where no tree was compared.

    Args:
        batches: of each batch size.
        who: engines that draft no trees, in words.
    """
    compared = [advice for advice in batches if TREE in advice.compared]
    if not compared:
        return ""
    costly = [(advice, gain) for advice in compared if advice.choice == TREE and (gain := advice.gain) is not None]
    if not costly:
        return f"{who} no trees; at no batch size here is that a significant loss."
    advice, gain = max(costly, key=lambda pair: pair[1].ratio)
    share, low, high = (
        100 * (1 - 1 / ratio) for ratio in (gain.ratio, gain.ratio_interval.low, gain.ratio_interval.high)
    )
    where = f"at batch {advice.of.batch}" + (", the most here" if len(costly) > 1 else "")
    return f"{who} no trees: that costs {share:.1f} % [{low:.1f}, {high:.1f}] of the tokens/s {where}."


def needs_sentence(advice: BatchAdvice) -> str:
    """What would make a tree pay that is slower than the chain; empty where it is not slower."""
    if advice.tree is None or advice.choice != CHAIN or advice.verdict(TREE, CHAIN) is not False:
        return ""
    length, needed_length, token_s, needed_token_s = tree_needs(advice.chain, advice.tree).values()
    start = f"Batch {advice.of.batch}: {advice.tree.policy} would be as fast as the chain with an acceptance length of "
    start = f"{start}{needed_length:.2f} (now {length:.2f})"
    if token_s is None or needed_token_s is None or needed_token_s <= 0:
        return f"{start}; no price of a drafted token would do."
    wanted, now = (f"{1e3 * seconds:.2g} ms" for seconds in (needed_token_s, token_s))
    return f"{start}, or if each extra drafted token cost less than {wanted} per round (now {now})."


def cut_sentence(advice: BatchAdvice, block_size: int) -> str:
    """What it means that a chain is the beginning of a larger block, for the chain that an engine would draft."""
    chain = advice.chain
    assert chain is not None
    length, size = chain.totals.acceptance_length, drafted(chain)
    first, needed = "token" if size == 1 else f"{size} tokens", length / advice.gains[CHAIN, NOTHING].ratio
    return (
        f"* The first {first} of a recorded block of {block_size}. Engines draft a block as long as the chain, whose "
        f"acceptance differs (once measured: 1.94 instead of 2.32). At batch {advice.of.batch} it pays above an "
        f"acceptance length of {needed:.2f}; this one has {length:.2f}."
    )
