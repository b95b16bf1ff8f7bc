"""Best-first trees whose scores also ask a 3-gram how well a token goes with the two before it."""

import math
from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import NGramCorrected
from simlab.policies.edges.ngram import NGramCounts, empty_counts
from simlab.policies.orders.beam import Beam
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget

SOURCES = ("corpus", "text", "both")
BEST_FIRST, BEAM = "best-first", "beam"
SHAPES = (BEST_FIRST, BEAM)

_TEXT_SHARE = 0.5

ASSUMED_VOCABULARY = 1 << 17
"""The size of the vocabulary where the counts of the text are the only ones; a token never seen has 1 part in it."""


@dataclass(frozen=True)
class Presto(Composed):
    """The tokens with the largest sums of log q + ``ngram_weight`` x log p, p from a 3-gram of the two tokens before.

    ``counts`` says where the 3-gram was counted: ``corpus``, the file ``ngram``; ``text``, the prompt and what was
    committed; ``both``, the text with a share of ``text_share``. ``shape=beam`` looks only below the ``beam_width``
    best nodes of a depth and keeps the best of all depths. The score, its weight of 0.2, both shapes and budgets of
    128, 256 and 512 are as two accounts of the paper tell them; the paper itself could not be had.

    The 3-gram's smoothing (Witten and Bell), its floor of 1e-6, the candidates that are read and the width of the beam
    are not in those accounts and are simlab's. So are ``adaptive``, which takes as much of the weight at a depth as
    its entropy is of the largest it could be, log(k + 1) for the k candidates read and the rest as one; and
    ``renormalised``, which makes the candidates below a node and the rest, at the floor, sum to 1.
    """

    budget: int = 128
    ngram_weight: float = 0.2
    top_k: int = 64
    counts: str = "corpus"
    text_share: float = _TEXT_SHARE
    ngram: str = AUTO
    shape: str = BEST_FIRST
    beam_width: int = 16
    adaptive: bool = False
    renormalised: bool = False

    source: ClassVar[str] = "PRESTO 2026, arXiv 2607.22634"
    exactness: ClassVar[str] = "reconstruction: score and shapes from two accounts of the paper; the rest is simlab's"
    reads: ClassVar[str] = "the first top_k candidates at each depth; the tokens before the root; counts of a 3-gram"
    variants: ClassVar[tuple[str, ...]] = (
        "budget=24",
        "budget=24,ngram_weight=0",
        "budget=24,counts=text",
        "budget=24,counts=both,text_share=0.3",
        "budget=24,adaptive=true",
        "budget=24,renormalised=true",
        "budget=24,shape=beam,beam_width=4",
        "budget=24,shape=beam,counts=both,adaptive=true,renormalised=true",
    )

    def __post_init__(self) -> None:
        for name in ("budget", "top_k", "beam_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if not 0 <= self.ngram_weight < math.inf:
            raise ValueError(f"ngram_weight must be at least 0; got {self.ngram_weight}")
        if not 0 <= self.text_share <= 1:
            raise ValueError(f"text_share must be from 0 to 1; got {self.text_share}")
        if self.counts != "both" and self.text_share != _TEXT_SHARE:
            raise ValueError(f"text_share is read with counts=both alone; got text_share={self.text_share} without it")
        for name, values in (("counts", SOURCES), ("shape", SHAPES)):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is one of {', '.join(values)}; got {getattr(self, name)}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (
            f"ngram_weight=0.1/0.2/0.3/0.5,budget=1..{budget}",
            f"counts=text,ngram_weight=0.1/0.2/0.3/0.5,budget=1..{budget}",
        )

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        settings: dict[str, bool | int | float | str] = {"budget": self.budget, "top_k": self.top_k}
        if self.ngram_weight > 0:
            names = ("ngram_weight", "counts", "text_share", "ngram", "adaptive", "renormalised")
            settings |= {name: getattr(self, name) for name in names}
        if self.shape == BEAM:
            settings |= {"order": BEAM, "width": self.beam_width}
        return typed_tree(**settings)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first, or a beam, on corrected scores; a fixed budget."""
        # A weight of 0 is DDTree on the same ranks; and it needs no counts.
        counts = self.counts if self.ngram_weight > 0 else "text"
        corpus, corpus_id, _ = corpus_of(artefacts, counts, self.ngram, self.text_share)
        edge = NGramCorrected(
            self.ngram_weight,
            corpus,
            corpus_id,
            text_share=share_of(self.counts, self.text_share),
            renormalised=self.renormalised,
            adaptive=self.adaptive,
            top_k=self.top_k,
        )
        order = BestFirst(edge) if self.shape == BEST_FIRST else Beam(edge, width=self.beam_width)
        return Composition(order, FixedBudget(self.budget), {"ngram": corpus_id} if corpus_id else {})


def share_of(counts: str, text_share: float) -> float:
    """How much the counts of the text count beside those of a corpus."""
    return {"corpus": 0.0, "text": 1.0, "both": text_share}[counts]


def corpus_of(artefacts: Artefacts, counts: str, ngram: str, text_share: float) -> tuple[NGramCounts, str, float]:
    """The counts of a fixed text with their content id, and the share of the text's own beside them.

    Args:
        artefacts: where the counts are.
        counts: one of `SOURCES`.
        ngram: the name of the counts.
        text_share: with ``both``.

    Returns:
        counts, of no token where they would count for nothing; their id, then empty; the share.
    """
    share = share_of(counts, text_share)
    corpus, corpus_id = artefacts.ngram(ngram) if share < 1 else (empty_counts(ASSUMED_VOCABULARY, 0), "")
    return corpus, corpus_id, share
