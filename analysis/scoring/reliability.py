"""Are candidates as often right as an edge model says? Reliability curves and calibration errors, slice by slice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import intervals_of, prompt_spread, ratios, share_intervals
from simlab.analysis.table.estimates import NO_FIGURE, Estimate, Figures, Row, estimates, sum_of_distances
from simlab.arrays import Doubles, Longs
from simlab.policies.fits.edge_sums import EDGES, LOG_LOSS, LOST, PREDICTED, RANK_CLASSES, SQUARES, TRUE, EdgeSums
from simlab.traces.format.files import write_frame

ANY, TRUE_PREFIX, ON_SPINE, OFF_SPINE, BEYOND = "any prefix", "true prefix", "spine", "off-spine", "lost"
PLACES: dict[str, tuple[int, ...]] = {
    ANY: (0, 1, LOST),
    TRUE_PREFIX: (0, 1),
    ON_SPINE: (0,),
    OFF_SPINE: (1,),
    BEYOND: (LOST,),
}
"""Whatever stands between root and candidate; below nodes of the true path; of these the root and nodes reached by the
drafter's first candidates alone, and all others; below a true token that is no candidate."""

NUM_BINS = 10
"""Of a curve, at most; empty ones are left out."""

RELIABILITY_SCHEMA: dict[str, pl.DataType] = {
    "slice": pl.String(),
    "edges": pl.String(),
    "has_probabilities": pl.Boolean(),
    "place": pl.String(),
    "depth": pl.Int32(),
    "rank": pl.String(),
    "num_edges": pl.Int64(),
    "weight_share": pl.Float64(),
    "predicted": pl.Float64(),
    "observed": pl.Float64(),
    "observed_ci_low": pl.Float64(),
    "observed_ci_high": pl.Float64(),
}
"""One row is one bin of one edge model; see `reliability`. ``slice`` is the dataset, or null for all; ``depth`` and
``rank`` are null for all."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredEdges:
    """One edge model on a trace.

    Attributes:
        label: of the first policy that has it, without its budget.
        has_probabilities: whether its scores are meant as probabilities.
        reads_prefix: whether they depend on the path; if so nothing is known of `ANY` and `BEYOND`.
        sums: of each prompt.
    """

    label: str
    has_probabilities: bool
    reads_prefix: bool
    sums: EdgeSums

    def take(self, prompts: Longs) -> "ScoredEdges":
        """The sums of this edge model over some prompts."""
        sums = EdgeSums(*(array[prompts] for array in self.sums))
        return replace(self, sums=sums)

    @staticmethod
    def joined(parts: "Sequence[ScoredEdges]") -> "ScoredEdges":
        """One edge model over different prompts, one behind the other."""
        sums = EdgeSums(*map(np.concatenate, zip(*(part.sums for part in parts), strict=True)))
        return replace(parts[0], sums=sums)

    @property
    def places(self) -> tuple[str, ...]:
        """Those at which something is known."""
        return (TRUE_PREFIX, ON_SPINE, OFF_SPINE) if self.reads_prefix else tuple(PLACES)

    def named(self, where: "EdgeSlice") -> Figures:
        """What the figures of a slice begin with."""
        return {"edges": self.label, "has_probabilities": self.has_probabilities, **asdict(where)}

    def slices(self) -> Iterator["EdgeSlice"]:
        """Every place whole, by depth and by class of rank; and first candidates by depth."""
        depths = range(1, self.sums.nodes.shape[2] + 1)
        for place in self.places:
            yield EdgeSlice(place)
            yield from (EdgeSlice(place, depth=depth) for depth in depths)
            yield from (EdgeSlice(place, rank=rank) for rank in RANK_CLASSES)
            yield from (EdgeSlice(place, depth, RANK_CLASSES[0]) for depth in depths)


@dataclass(frozen=True, slots=True)
class EdgeSlice:
    """Which candidates are looked at.

    Attributes:
        place: one of `PLACES`.
        depth: from 1; None: all.
        rank: one of `simlab.policies.fits.edge_sums.RANK_CLASSES`; None: all.
    """

    place: str = TRUE_PREFIX
    depth: int | None = None
    rank: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all depths and ranks."""
        return self.depth is None and self.rank is None

    @property
    def has_curve(self) -> bool:
        """Whether bins of probabilities are kept for it: not for a depth and a class of rank at once."""
        return self.depth is None or self.rank is None


def reliability(model: ScoredEdges, where: EdgeSlice) -> list[Figures]:
    """The reliability curve of an edge model, from small to large probabilities, a bin after the other.

    Bins hold equal shares of the summed probability, as nearly as steps of an eighth of a logit allow, not equal
    numbers of candidates: nearly all candidates are hopeless, and a tree spends its nodes where the probability is.
    Of a bin's candidates ``predicted`` is the mean probability, ``observed`` the share that was the true token.

    Args:
        model: on the prompts of interest.
        where: a place, and a depth or a class of rank, not both.
    """
    if where.place not in model.places or not where.has_curve:
        raise ValueError(f"there is no reliability curve of {where} for {model.label}")
    binned = _binned(model.sums, where)
    total = binned.sum(axis=0)
    figures = []
    for number, (edges, predicted, true) in enumerate(total):
        (interval,) = share_intervals(prompt_spread(binned[:, number][:, [EDGES, TRUE]], ratios))
        figures.append(
            model.named(where)
            | {"num_edges": int(edges), "weight_share": float(predicted / total[:, PREDICTED].sum())}
            | {"predicted": predicted / edges, "observed": Estimate(true / edges, interval)}
        )
    return figures


def write_reliability(path: Path, rows: Sequence[Row], ids: Mapping[str, str]) -> None:
    """Write bins as a Parquet file, whole or not at all.

    Args:
        path: the file.
        rows: bins of `reliability` as flat rows, with their slices.
        ids: columns with one value for all rows, which say where they come from.
    """
    frame = pl.DataFrame(rows, schema=RELIABILITY_SCHEMA, orient="row")
    write_frame(path, frame.with_columns(**{name: pl.lit(value, pl.String) for name, value in ids.items()}))


def calibration(model: ScoredEdges, where: EdgeSlice, first: ScoredEdges | None = None) -> Figures | None:
    """How well probabilities fit what came true in a slice; None where there is no candidate.

    A node is one of a true path, with all its candidates in the slice. ``excess_per_node`` is the summed probabilities
    less the true tokens: above 0 the edge model is overconfident. ``ece_per_node`` is the expected calibration error
    less what noise adds to it, ``ece_per_node_raw`` as it is on these prompts; neither is known of a depth and a rank.
    ``log_loss_per_node`` is the negative log-likelihood, in nats, of whether each candidate is the true token,
    ``brier_per_node`` the squared errors, both summed over the candidates of a node.

    Args:
        model: on the prompts of interest.
        where: which candidates.
        first: the model against which the log loss is told; None: none.
    """
    nodes, cells = node_sums(model, where)
    if cells[:, EDGES].sum() == 0:
        return None
    total = cells.sum(axis=0)
    num = nodes.sum()
    per_node = np.stack([nodes, cells[:, PREDICTED] - cells[:, TRUE], cells[:, LOG_LOSS]], axis=1)
    excess, loss = intervals_of(prompt_spread(per_node, ratios))
    raw_ece, ece = _calibration_error(model, where, nodes)
    against = None if first is None else loss_against(model, first, where)
    return {
        **model.named(where),
        "num_nodes": int(num),
        "num_edges": int(total[EDGES]),
        "expected_per_node": total[PREDICTED] / num,
        "true_per_node": total[TRUE] / num,
        "excess_per_node": Estimate((total[PREDICTED] - total[TRUE]) / num, excess),
        "ece_per_node": ece,
        "ece_per_node_raw": raw_ece,
        "log_loss_per_node": Estimate(total[LOG_LOSS] / num, loss),
        "log_loss_against_first": against or NO_FIGURE,
        "brier_per_node": total[SQUARES] / num,
    }


def loss_against(model: ScoredEdges, other: ScoredEdges, where: EdgeSlice) -> Estimate | None:
    """By how much a model's log loss a node is larger than another's, paired over prompts.

    None on other nodes, and where scores are no probabilities.
    """
    if not (model.has_probabilities and other.has_probabilities):
        return None
    (nodes, cells), (others, other_cells) = node_sums(model, where), node_sums(other, where)
    if not np.array_equal(nodes, others) or nodes.sum() == 0:
        return None
    sums = np.stack([nodes, cells[:, LOG_LOSS] - other_cells[:, LOG_LOSS]], axis=1)
    return estimates(prompt_spread(sums, ratios))[0]


def node_sums(model: ScoredEdges, where: EdgeSlice) -> tuple[Doubles, Doubles]:
    """Nodes, float64 ``[P]``, and sums over their candidates, float64 ``[P, 5]``, of each prompt."""
    places = list(PLACES[where.place])
    depths = slice(None) if where.depth is None else slice(where.depth - 1, where.depth)
    ranks = slice(None) if where.rank is None else slice(RANK_CLASSES.index(where.rank), None)
    nodes = model.sums.nodes[:, places][..., depths].sum(axis=(1, 2))
    cells = model.sums.cells[:, places][:, :, depths, ranks]
    cells = cells if where.rank is None else cells[..., :1, :]
    return nodes, cells.sum(axis=(1, 2, 3))


def _calibration_error(model: ScoredEdges, where: EdgeSlice, nodes: Doubles) -> tuple[float | None, Estimate]:
    """Distances between summed probabilities and true tokens of each bin, a node."""
    if not where.has_curve:
        return None, NO_FIGURE
    binned = _binned(model.sums, where)
    off = binned[..., PREDICTED] - binned[..., TRUE]
    return sum_of_distances(prompt_spread(np.concatenate([nodes[:, None], off], axis=1), ratios))


def _binned(sums: EdgeSums, where: EdgeSlice) -> Doubles:
    """float64 ``[P, bins, 3]``, bins of equal shares of the summed probability, empty ones left out."""
    places = list(PLACES[where.place])
    if where.rank is not None:
        fine = sums.by_rank[:, places, RANK_CLASSES.index(where.rank)].sum(axis=1)
    else:
        depths = slice(None) if where.depth is None else slice(where.depth - 1, where.depth)
        fine = sums.by_depth[:, places][:, :, depths].sum(axis=(1, 2))
    mass = fine[..., PREDICTED].sum(axis=0)
    reached = (np.cumsum(mass) - mass / 2) / max(mass.sum(), np.finfo(np.float64).tiny)
    numbers = np.minimum((reached * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    coarse = np.stack([fine[:, numbers == number].sum(axis=1) for number in range(NUM_BINS)], axis=1)
    return coarse[:, coarse[..., EDGES].sum(axis=0) > 0]
