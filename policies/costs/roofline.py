"""What a pass of a target costs by a roofline: the slower of moving its bytes and doing its arithmetic.

BASTION (2026, arXiv 2605.29727) puts the seconds of a pass of s tokens after c others at max(alpha_m T_mem + beta_m,
alpha_c T_comp + beta_c), with T_mem and T_comp the bytes and operations of a dense transformer over the machine's
peaks, and fits the four constants to measured seconds. The peaks only scale alpha_m and alpha_c, so they need not be
known here. Both branches are convex in s, and so is the larger one.

As released are the counts of bytes and operations, the sizes that are fitted (every 16th), and the weights: sigma grows
with s, to 31 times what it is at the smallest. simlab's own are the measurement that is fitted (the price of a cell of
a cost file, where the release has a mean of five), its contexts, the search, which does not depend on where it starts,
and the seconds of the other stages: the release probes two means of its own, here they are means of the same file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from simlab.arrays import Doubles, Longs
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.ids import content_id
from simlab.policies.costs.curves import RoundCosts

# Whether prices look launch-bound: flat far past the size of a pass at which arithmetic should bite.
#
# A pass of s tokens moves the target's weights once and does two operations for each weight and token. Beyond R
# tokens, R the operations that a machine can do while it moves a byte (weights of 2 bytes; those of 4 make it smaller
# wherever arithmetic on them is slower), arithmetic is what takes the time, and a pass should take s / R times as long
# as a small one. Where it takes much less, the small one was slow for another reason: starting one operation after
# another takes as long as they run. Large trees then look free, and would not be where operations are started
# together, as a graph.


_A100 = 312e12 / 1935e9

RIDGES = {
    "A100": _A100,
    "A800": _A100,
    "H100": 989e12 / 3350e9,
    "H200": 989e12 / 4800e9,
    "A6000": 155e12 / 768e9,
    "A5000": 111e12 / 768e9,
    "RTX PRO 6000": 504e12 / 1792e9,
}
"""R by a part of the device's name, from the peaks of bfloat16 arithmetic and memory that BASTION's release has; an
A800 is an A100 whose links to others are slower."""

UNKNOWN_RIDGE = max(RIDGES.values())
"""For other devices the largest known, so that what is found holds whatever the device."""

FAR = 1.5
"""Prices that end below so many times R tell nothing."""

SHARE = 0.75
"""A table looks launch-bound where its longest pass takes less than this share of s / R times the shortest."""


def flatness(cost: CostTable, device: str) -> dict[str, Any]:
    """How much longer the longest measured pass takes than one of the root alone, and how much it should.

    Args:
        cost: of one machine.
        device: its name; where it is none of ``RIDGES``, `UNKNOWN_RIDGE` is taken.

    Returns:
        As ``simlab inspect --json`` has it: ``context``, tokens before the root, the fewest measured, where the weights
        are most of what is moved; ``tokens`` of the longest pass, the root counted; ``ratio``, its seconds over those
        of the shortest; ``ridge``, R; and ``looks_launch_bound``, None where the prices end too early to tell.
    """
    row = cost.seconds["verify"][0]
    ridge = next((value for name, value in RIDGES.items() if name in device.upper()), UNKNOWN_RIDGE)
    ratio = float(row[-1] / row[0]) if row[0] > 0 else float("inf")
    far, is_flat = len(row) >= FAR * ridge, ratio < SHARE * len(row) / ridge
    figures = {"context": int(cost.contexts[0]), "tokens": len(row), "ratio": ratio, "ridge": ridge}
    return {**figures, "looks_launch_bound": is_flat if far else None}


def flatness_warning(flat: Mapping[str, Any]) -> str:
    """A sentence of the figures of `flatness` for whoever reads the prices; empty where there is nothing to warn of."""
    if not flat["looks_launch_bound"]:
        return ""
    return (
        f"looks launch-bound: with {flat['context']:,} tokens before it, a pass of {flat['tokens']:,} takes only "
        f"{flat['ratio']:.2f} times as long as one token, and arithmetic alone should make it "
        f"{flat['tokens'] / flat['ridge']:.1f} times; large trees look free here and would not in an engine whose "
        "short passes are faster, of few fused operations that start as a graph"
    )


# The sizes of a dense transformer's layers, and what one pass of it computes and moves.
#
# The counts are those of BASTION (2026, arXiv 2605.29727), as its release has them: every multiplication and addition
# of the matrix products, and every weight, cached row and activation once, attention scores twice.


ELEMENT_BYTES = 2
"""As published; a wider type moves as many times more in every term, which a fit to measured seconds takes up."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """The sizes of a target's layers, with grouped queries and a gated feed-forward network.

    Attributes:
        num_layers: of the target.
        hidden: width of a token's state.
        query: width of all queries of a token.
        key_value: width of all keys of a token, and of all its values.
        num_heads: of queries.
        feed_forward: inner width of the feed-forward network.
        vocab: tokens that the head scores.
    """

    num_layers: int
    hidden: int
    query: int
    key_value: int
    num_heads: int
    feed_forward: int
    vocab: int

    def __post_init__(self) -> None:
        if min(astuple(self)) < 1:
            raise ValueError(f"sizes of layers must be at least 1; got {self!r}")

    @property
    def sizes_id(self) -> str:
        """The content id of these sizes."""
        return content_id(asdict(self))

    def flops(self, contexts: Doubles, tokens: Doubles) -> Doubles:
        """Floating-point operations of a pass.

        Args:
            contexts: float64, tokens before the root.
            tokens: float64, tokens of the pass, the root among them; of a shape that goes with ``contexts``.
        """
        projections = 4 * self.hidden * (self.query + self.key_value) + 6 * self.hidden * self.feed_forward
        attention = 4 * self.query * tokens * (contexts + tokens)
        return self.num_layers * (projections * tokens + attention) + 2 * self.hidden * self.vocab * tokens

    def moved_bytes(self, contexts: Doubles, tokens: Doubles) -> Doubles:
        """Bytes that a pass reads and writes; arguments as of `flops`."""
        layer = 2 * self.hidden * (self.query + self.key_value) + 3 * self.hidden * self.feed_forward
        weights = 2 * self.vocab * self.hidden + self.num_layers * layer
        cached = 2 * self.key_value * (contexts + tokens)
        states = 4 * self.hidden + 4 * self.query + 2 * self.key_value + 4 * self.feed_forward
        scores = 2 * self.num_heads * tokens * (contexts + tokens)
        head = (self.hidden + self.vocab) * tokens
        return ELEMENT_BYTES * (weights + self.num_layers * (cached + states * tokens + scores) + head)


def layer_sizes(config: Mapping[str, object], where: str) -> LayerSizes:
    """The sizes in a model's ``config.json``, by the names of Llama and Qwen.

    Args:
        config: without ``num_key_value_heads`` there are as many as of queries, without ``head_dim`` the hidden state
            is shared among them.
        where: it comes from, for messages.
    """
    if any(_is_many(config.get(name)) for name in _EXPERTS):
        raise PolicyError(
            f"{where} is of a mixture of experts, and the roofline is that of a dense transformer; use the measured "
            "latencies: cost_model=measured"
        )
    hidden, num_heads = _size(config, "hidden_size", where), _size(config, "num_attention_heads", where)
    num_shared = num_heads if config.get("num_key_value_heads") is None else _size(config, "num_key_value_heads", where)
    head = max(1, hidden // num_heads) if config.get("head_dim") is None else _size(config, "head_dim", where)
    return LayerSizes(
        num_layers=_size(config, "num_hidden_layers", where),
        hidden=hidden,
        query=num_heads * head,
        key_value=num_shared * head,
        num_heads=num_heads,
        feed_forward=_size(config, "intermediate_size", where),
        vocab=_size(config, "vocab_size", where),
    )


def _is_many(value: object) -> bool:
    return isinstance(value, int) and value > 1


def _size(config: Mapping[str, object], name: str, where: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"{where} must give {name} as a whole number above 0; got {value!r}")
    return value


SIZE_STEP = 16
"""Passes of every so many tokens are fitted."""

FEWEST_SIZES = 4
"""With fewer sizes four constants say nothing."""

SIGMA_SCALE = 30.0
"""How much larger sigma is at the largest size than at the smallest, less 1."""

NUM_SLOPES = 48
"""Directions of the fan."""

NUM_STARTS = 8
"""From so many of the best splits it goes downhill."""

DIGITS = 6
"""Constants are rounded to as many."""

_DOWNHILL = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds of a target's pass, and of whole rounds, whose other stages take as long whatever the pass.

    Attributes:
        sizes: of the target's layers.
        byte_s: seconds for each byte moved; alpha_m over the memory's bandwidth.
        memory_s: seconds that moving takes besides; beta_m.
        flop_s: seconds for each operation; alpha_c over the peak of arithmetic.
        compute_s: seconds that arithmetic takes besides; beta_c.
        other_s: of all other stages of a round that count.
    """

    sizes: LayerSizes
    byte_s: float
    memory_s: float
    flop_s: float
    compute_s: float
    other_s: float = 0.0

    def __post_init__(self) -> None:
        constants = (self.byte_s, self.memory_s, self.flop_s, self.compute_s)
        if not all(0 <= constant < float("inf") for constant in constants) or not any(constants):
            raise ValueError(f"the constants of a roofline must be at least 0, and one above; got {constants}")

    def seconds(self, contexts: Doubles, tokens: Doubles) -> Doubles:
        """The seconds of a target's pass.

        Args:
            contexts: float64, tokens before the root.
            tokens: float64, tokens of the pass, the root among them; of a shape that goes with ``contexts``.
        """
        moving = self.byte_s * self.sizes.moved_bytes(contexts, tokens) + self.memory_s
        computing = self.flop_s * self.sizes.flops(contexts, tokens) + self.compute_s
        return np.maximum(moving, computing)

    def costs(self, contexts: Longs, most_drafted: int) -> RoundCosts:
        """Seconds of rounds at each of some contexts, for up to so many drafted tokens; exact at these contexts.

        Args:
            contexts: int64 ``[R]``, in any order.
            most_drafted: the pass runs one token more.
        """
        rising = np.unique(contexts).astype(np.float64)
        tokens = np.arange(1.0, most_drafted + 2.0)
        return RoundCosts(rising, self.seconds(rising[:, None], tokens) + self.other_s)


def fit_roofline(sizes: LayerSizes, contexts: Doubles, tokens: Doubles, seconds: Doubles) -> Roofline:
    """The roofline that fits measured passes best.

    Args:
        sizes: of the target's layers.
        contexts: float64 ``[P]``, tokens before the root.
        tokens: float64 ``[P]``, tokens of each pass, the root among them.
        seconds: float64 ``[P]``, measured.

    Raises:
        PolicyError: there are passes of fewer than four sizes, or one took no time.
    """
    different = np.unique(tokens)
    if len(different) < FEWEST_SIZES:
        raise PolicyError(
            f"a roofline has four constants, and there are latencies of {len(different)} sizes of a pass; it takes at "
            f"least {FEWEST_SIZES}"
        )
    if not np.all((seconds > 0) & np.isfinite(seconds)):
        raise PolicyError("a roofline is fitted to measured seconds, and some of these are 0 or no number")
    sigma = 1.0 + SIGMA_SCALE * (tokens - different[0]) / (different[-1] - different[0])
    moved, flops = sizes.moved_bytes(contexts, tokens), sizes.flops(contexts, tokens)
    return Roofline(sizes, *fit_larger_of_two(moved, flops, seconds, sigma / sigma.mean()))


@lru_cache(maxsize=64)
def roofline_of(cost: CostTable, sizes: LayerSizes) -> Roofline:
    """The roofline of a cost table's verification, fitted to passes of 16, 32, 48, ... tokens at all its contexts."""
    columns = _fitted_columns(cost)
    contexts = np.repeat(cost.contexts.astype(np.float64), len(columns))
    tokens = np.tile(columns.astype(np.float64) + 1.0, len(cost.contexts))
    return fit_roofline(sizes, contexts, tokens, cost.seconds["verify"][:, columns].ravel())


def roofline_rounds(cost: CostTable, sizes: LayerSizes, stages: Sequence[str]) -> Roofline:
    """Rounds by the roofline of a cost table; each other stage takes its mean over what was fitted.

    Args:
        cost: what is fitted.
        sizes: of the target's layers.
        stages: that count; ``verify`` is the pass.
    """
    roofline, columns = roofline_of(cost, sizes), _fitted_columns(cost)
    means = [float(cost.seconds[stage][:, columns].mean()) for stage in stages if stage != "verify"]
    return replace(roofline, other_s=sum(means))


def _fitted_columns(cost: CostTable) -> Longs:
    """int64, drafted tokens of the sizes that are fitted."""
    columns = cast(Longs, np.arange(SIZE_STEP, cost.most_drafted + 2, SIZE_STEP) - 1)
    if len(columns) < FEWEST_SIZES:
        raise PolicyError(
            f"a roofline is fitted to passes of {SIZE_STEP}, {2 * SIZE_STEP}, ... tokens, at least {FEWEST_SIZES} "
            f"sizes, and this latency profile ends at {cost.most_drafted} drafted tokens; "
            f"{cost.how_to_reach(measure=f'measure up to {FEWEST_SIZES * SIZE_STEP - 1} or more')}"
        )
    return columns


def fit_larger_of_two(x: Doubles, y: Doubles, values: Doubles, sigma: Doubles) -> tuple[float, float, float, float]:
    """The constants with the smallest sum of squares of (max(a x + b, c y + d) - value) / sigma that was found.

    Least squares have many local minima here. For a given split of the points into those of the first line and those of
    the second, both lines are plain least squares; and a split is made by a line in the plane of x and y. So the search
    tries a fan of such lines at every place where they part the points, and goes downhill from the best ones by Nelder
    and Mead's simplex, which takes the kinks between two splits as they are. It does the same arithmetic on every
    machine.

    Args:
        x: float64 ``[P]``, not negative; so are all others.
        y: float64 ``[P]``.
        values: float64 ``[P]``, above 0.
        sigma: float64 ``[P]``, above 0.

    Returns:
        a, b, c and d, each at least 0.
    """
    # Half a second to load, and only a policy that asks for a roofline comes here.
    from scipy.optimize import minimize  # noqa: PLC0415

    scale_x, scale_y, scale = x.mean() or 1.0, y.mean() or 1.0, values.mean()
    x, y, values = x / scale_x, y / scale_y, values / scale

    def squares(constants: Doubles) -> float:
        a, b, c, d = constants.tolist()
        return float(np.square((np.maximum(a * x + b, c * y + d) - values) / sigma).sum())

    starts = _lines_of_splits(x, y, values, 1.0 / sigma**2)
    sums = np.array([squares(start) for start in starts])
    best, least = starts[sums.argmin()], sums.min()
    for index in _distinct(sums)[:NUM_STARTS]:
        end = minimize(squares, starts[index], method="Nelder-Mead", bounds=[(0.0, None)] * 4, options=_DOWNHILL)
        if end.fun < least:
            best, least = end.x, end.fun
    unscaled = best * scale / np.array([scale_x, 1.0, scale_y, 1.0])
    a, b, c, d = (float(f"{value:.{DIGITS - 1}e}") for value in unscaled)
    return a, b, c, d


def _distinct(squares: Doubles) -> Longs:
    """int64, places of sums of squares, the least first, of nearly equal ones the first."""
    order = np.argsort(squares, kind="stable")
    rising = squares[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = rising[1:] > rising[:-1] * (1 + 1e-9)
    return order[is_new]


def _lines_of_splits(x: Doubles, y: Doubles, values: Doubles, weights: Doubles) -> Doubles:
    """float64 ``[S, 4]``, the two lines of each split that is tried."""
    over, up = x[:, None] - x, y[:, None] - y
    slopes = up[over > 0] / over[over > 0]
    slopes = slopes[slopes >= 0]
    fan = np.unique(np.quantile(slopes, np.linspace(0, 1, NUM_SLOPES))) if len(slopes) else np.zeros(1)
    lines = []
    for slope in fan:
        order = np.argsort(y - slope * x, kind="stable")
        below = _running_sums(x[order], values[order], weights[order])
        above = _running_sums(y[order][::-1], values[order][::-1], weights[order][::-1])[:, ::-1]
        lines.append(np.stack([*_lines(below), *_lines(above)], axis=1))
    return np.concatenate(lines)


def _running_sums(x: Doubles, values: Doubles, weights: Doubles) -> Doubles:
    """float64 ``[5, P + 1]``, what least squares need of the first points, for every number of them."""
    terms = np.stack([weights, weights * x, weights * x * x, weights * values, weights * x * values])
    return np.concatenate([np.zeros((5, 1)), np.cumsum(terms, axis=1)], axis=1)


def _lines(sums: Doubles) -> tuple[Doubles, Doubles]:
    """Slopes and intercepts of least squares, none below 0; both 0 where there is no point."""
    weight, x, xx, value, xvalue = sums
    spread = weight * xx - x * x
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.where(spread > 1e-12 * weight * xx, (weight * xvalue - x * value) / spread, 0.0)
        slopes = np.maximum(np.nan_to_num(slopes), 0.0)
        intercepts = np.nan_to_num((value - slopes * x) / weight)
        # Where a line would begin below 0 the best one begins there; values are above 0, so it rises.
        slopes = np.where(intercepts < 0, np.nan_to_num(xvalue / xx), slopes)
    return slopes, np.maximum(intercepts, 0.0)
