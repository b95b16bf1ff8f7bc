"""Are candidates as often right as an edge model says? Reliability curves and calibration errors, slice by slice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.statistics.intervals import (
    intervals_of,
    prompt_spread,
    ratios,
    share_intervals,
)
from simlab.analysis.table.estimates import Estimate, estimates, sum_of_distances
from simlab.arrays import Doubles, Longs
from simlab.policies.fits.edge_sums import EDGES, LOG_LOSS, LOST, PREDICTED, RANK_CLASSES, SQUARES, TRUE, EdgeSums

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
        return ScoredEdges(self.label, self.has_probabilities, self.reads_prefix, sums)

    @staticmethod
    def joined(parts: "Sequence[ScoredEdges]") -> "ScoredEdges":
        """One edge model over different prompts, one behind the other."""
        sums = EdgeSums(*map(np.concatenate, zip(*(part.sums for part in parts), strict=True)))
        return replace(parts[0], sums=sums)

    @property
    def places(self) -> tuple[str, ...]:
        """Those at which something is known."""
        return (TRUE_PREFIX, ON_SPINE, OFF_SPINE) if self.reads_prefix else tuple(PLACES)

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


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Candidates of about the same probability.

    Attributes:
        edges: how many.
        weight: their share of all probability in the slice; about the same in each bin.
        predicted: their mean probability.
        observed: the share of them that was the true token.
    """

    edges: int
    weight: float
    predicted: float
    observed: Estimate


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well probabilities fit what came true. A node is one of a true path, with all its candidates in the slice.

    Attributes:
        slice: which candidates.
        nodes: below how many nodes they lie.
        edges: candidates.
        expected: true tokens a node by the edge model, summed probabilities.
        observed: true tokens a node that there were.
        excess: ``expected - observed``; above 0 the edge model is overconfident.
        ece: expected calibration error a node, less what noise adds to it; None where the slice is of a depth and a
            rank.
        raw_ece: as it is on these prompts; None as ``ece``.
        log_loss: negative log-likelihood of whether each candidate is the true token, in nats, summed over those of a
            node.
        brier: squared errors, summed over the candidates of a node.
    """

    slice: EdgeSlice
    nodes: int
    edges: int
    expected: float
    observed: float
    excess: Estimate
    ece: Estimate | None
    raw_ece: float | None
    log_loss: Estimate
    brier: float


def reliability(model: ScoredEdges, where: EdgeSlice) -> list[ReliabilityBin]:
    """The reliability curve of an edge model, from small to large probabilities.

    Bins hold equal shares of the summed probability, as nearly as steps of an eighth of a logit allow, not equal
    numbers of candidates: nearly all candidates are hopeless, and a tree spends its nodes where the probability is.

    Args:
        model: on the prompts of interest.
        where: a place, and a depth or a class of rank, not both.
    """
    if where.place not in model.places or (where.depth is not None and where.rank is not None):
        raise ValueError(f"there is no reliability curve of {where} for {model.label}")
    binned = _binned(model.sums, where)
    if binned.size == 0:
        return []
    total = binned.sum(axis=0)
    found = []
    for number in range(binned.shape[1]):
        edges, predicted, true = total[number]
        (interval,) = share_intervals(prompt_spread(binned[:, number][:, [EDGES, TRUE]], ratios))
        weight = predicted / total[:, PREDICTED].sum()
        observed = Estimate(true / edges, interval)
        found.append(ReliabilityBin(int(edges), float(weight), predicted / edges, observed))
    return found


def calibration(model: ScoredEdges, where: EdgeSlice) -> Calibration | None:
    """How well probabilities fit in a slice; None where there is no candidate."""
    nodes, cells = node_sums(model, where)
    if cells[:, EDGES].sum() == 0:
        return None
    total = cells.sum(axis=0)
    num = nodes.sum()
    per_node = np.stack([nodes, cells[:, PREDICTED] - cells[:, TRUE], cells[:, LOG_LOSS]], axis=1)
    excess, loss = intervals_of(prompt_spread(per_node, ratios))
    raw_ece, ece = _calibration_error(model, where, nodes)
    return Calibration(
        slice=where,
        nodes=int(num),
        edges=int(total[EDGES]),
        expected=total[PREDICTED] / num,
        observed=total[TRUE] / num,
        excess=Estimate((total[PREDICTED] - total[TRUE]) / num, excess),
        ece=ece,
        raw_ece=raw_ece,
        log_loss=Estimate(total[LOG_LOSS] / num, loss),
        brier=total[SQUARES] / num,
    )


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


def _calibration_error(model: ScoredEdges, where: EdgeSlice, nodes: Doubles) -> tuple[float | None, Estimate | None]:
    """Distances between summed probabilities and true tokens of each bin, a node."""
    if where.depth is not None and where.rank is not None:
        return None, None
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
    coarse = np.stack([fine[:, numbers == one].sum(axis=1) for one in range(NUM_BINS)], axis=1)
    return coarse[:, coarse[..., EDGES].sum(axis=0) > 0]
