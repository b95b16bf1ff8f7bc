"""How likely is a token after a path? What scores the edges of a tree."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import numpy as np

from simlab.arrays import Doubles, Ints
from simlab.ids import content_id
from simlab.policies.edges.correction import NUM_CLASSES, Correction, no_correction
from simlab.policies.edges.ngram import NGramCounts, empty_counts
from simlab.policies.edges.ngram_counting import counts_of_text

NO_MAP: Doubles = np.empty((0, 2, NUM_CLASSES, 2), np.float64)
"""Of no depth: log-probabilities stay what they are."""


class EdgeModel(Protocol):
    """What an edge score is made of.

    Attributes:
        key: equal keys give equal scores.
        top_k: the first ranks that are read at each depth; None: every kept candidate.
        has_probabilities: whether exp(score) is meant as a probability.
        edge_map: float64 ``[D, 2, classes, 2]``, slope and intercept of a logistic map by depth, place below the spine
            or elsewhere, and class of rank; of no depth: none.
        is_corrected: whether it asks which tokens were before.
        counts_text: whether it counts what was committed.
    """

    @property
    def key(self) -> str: ...

    @property
    def top_k(self) -> int | None: ...

    @property
    def has_probabilities(self) -> bool: ...

    @property
    def edge_map(self) -> Doubles: ...

    @property
    def is_corrected(self) -> bool: ...

    @property
    def counts_text(self) -> bool: ...

    def correction(self, num_depths: int, num_tokens: int) -> Correction:
        """What a 3-gram adds, with room for the counts of so many tokens of text, none of them counted yet."""
        ...


class Uncorrected:
    """An edge model whose scores are log-probabilities, whatever tokens were before."""

    __slots__ = ()
    has_probabilities = True
    is_corrected = False
    counts_text = False

    def correction(self, num_depths: int, num_tokens: int) -> Correction:
        """A correction that adds nothing to any score."""
        return no_correction()


@dataclass(frozen=True, slots=True)
class Marginal(Uncorrected):
    """The drafter's own probability of a token at its depth, whatever stands before it."""

    top_k: int | None = None

    @property
    def key(self) -> str:
        """The name and the settings of this edge model."""
        return f"marginal:{self.top_k}"

    @property
    def edge_map(self) -> Doubles:
        """The map of no depth, `NO_MAP`."""
        return NO_MAP


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated(Uncorrected):
    """The drafter's probability after a fitted logistic map.

    Attributes:
        edge_map: float64 ``[D, 2, classes, 2]``; deeper ones are mapped as the last.
        map_id: its content id.
    """

    edge_map: Doubles
    map_id: str
    top_k: int | None = 64

    @property
    def key(self) -> str:
        """The name and the settings of this edge model."""
        return f"calibrated:{self.map_id}:{self.top_k}"


def edge_map_of(table: Mapping[str, object]) -> Doubles:
    """The maps of a fitted table, float64 ``[D, 2, classes, 2]``."""
    edge_map = np.array(table["values"], np.float64)
    if edge_map.ndim != 4 or edge_map.shape[1:] != (2, NUM_CLASSES, 2):
        raise ValueError(f"a calibration has values [D, 2, {NUM_CLASSES}, 2]; got {list(edge_map.shape)}; fit it again")
    return edge_map


@dataclass(frozen=True, slots=True, eq=False)
class NGramCorrected:
    """The drafter's log-probability and, weighted, that of a 3-gram.

    Attributes:
        weight: of the 3-gram.
        corpus: its counts of a fixed text.
        corpus_id: their content id.
        text_share: how much the counts of prompt and committed text count beside them, from 0 to 1.
        renormalised: whether the children of a node are made to sum to 1.
        adaptive: whether the weight follows the drafter's entropy at each depth.
        top_k: ranks that are read at each depth.
    """

    weight: float
    corpus: NGramCounts
    corpus_id: str
    _: KW_ONLY
    text_share: float = 0.0
    renormalised: bool = False
    adaptive: bool = False
    top_k: int | None = 64

    @property
    def key(self) -> str:
        """The name and the settings of this edge model."""
        settings = [self.weight, self.corpus_id, self.text_share, self.renormalised, self.adaptive, self.top_k]
        return f"ngram:{content_id(settings)}"

    @property
    def has_probabilities(self) -> bool:
        """Only where the children of a node sum to 1, or nothing is added."""
        return self.renormalised or self.weight == 0.0

    @property
    def is_corrected(self) -> bool:
        """Not with a weight of 0."""
        return self.weight != 0.0

    @property
    def counts_text(self) -> bool:
        """With a share of the text."""
        return self.is_corrected and self.text_share > 0

    @property
    def edge_map(self) -> Doubles:
        """The map of no depth, `NO_MAP`."""
        return NO_MAP

    def correction(self, num_depths: int, num_tokens: int) -> Correction:
        """A correction by the counts of its corpus, with room for those of a text."""
        if not self.is_corrected:
            return no_correction()
        vocab_size = int(self.corpus.totals[0])
        text = empty_counts(vocab_size, num_tokens if self.text_share > 0 else 0)
        weights = np.full(num_depths, self.weight, np.float64)
        share, weight = float(self.text_share), float(self.weight)
        return Correction(weights, self.corpus, text, share, self.renormalised, self.adaptive, weight)


def with_text_counts(correction: Correction, committed: Ints) -> Correction:
    """A correction with the counts of the prompt and the committed text.

    It is valid until the next call on this thread; one that reads no text is returned as it is.
    """
    if correction.weights.size > 0 and correction.text_share > 0:
        return correction._replace(text=counts_of_text(committed, int(correction.text.totals[0])))
    return correction
