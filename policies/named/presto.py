"""Best-first trees whose scores also ask a 3-gram how well a token goes with the two before it."""

from dataclasses import dataclass

from simlab.policies.artefacts import AUTO
from simlab.policies.named.tree import SOURCES, Preset, TreeSettings
from simlab.policies.settings import at_least, between, one_of

BEST_FIRST, BEAM = "best-first", "beam"
_TEXT_SHARE = 0.5


@dataclass(frozen=True)
class Presto(Preset):
    """The tokens with the largest sums of log q + ``ngram_weight`` x log p, p from a 3-gram of the two tokens before.

    ``counts`` says where the 3-gram was counted: ``corpus``, the file ``ngram``; ``text``, the prompt and what was
    committed; ``both``, the text with a share of ``text_share``. ``shape=beam`` looks only below the ``beam_width``
    best nodes of a depth and keeps the best of all depths. The score, its weight of 0.2, both shapes and budgets of
    128, 256 and 512 are those of two accounts of the paper; the paper itself was not available.

    The 3-gram's smoothing (Witten and Bell), its floor of 1e-6, the candidates that are read and the width of the beam
    are not in those accounts and are simlab's. So are ``adaptive``, which takes as much of the weight at a depth as
    its entropy is of the largest it could be, log(k + 1) for the k candidates read and the rest as one; and
    ``renormalised``, which makes the candidates below a node and the rest, at the floor, sum to 1.
    """

    budget: int = at_least(1, 128)
    ngram_weight: float = at_least(0, 0.2)
    top_k: int = at_least(1, 64)
    counts: str = one_of(SOURCES, "corpus")
    text_share: float = between(0, 1, _TEXT_SHARE)
    ngram: str = AUTO
    shape: str = one_of((BEST_FIRST, BEAM), BEST_FIRST)
    beam_width: int = at_least(1, 16)
    adaptive: bool = False
    renormalised: bool = False

    source = "PRESTO 2026, arXiv 2607.22634"
    exactness = "reconstruction: score and shapes from two accounts of the paper; the rest is simlab's"
    reads = "the first top_k candidates at each depth; the tokens before the root; counts of a 3-gram"
    variants = (
        "budget=24",
        "budget=24,ngram_weight=0",
        "budget=24,counts=text",
        "budget=24,counts=both,text_share=0.3",
        "budget=24,adaptive=true",
        "budget=24,renormalised=true",
        "budget=24,shape=beam,beam_width=4",
        "budget=24,shape=beam,counts=both,adaptive=true,renormalised=true",
    )
    tries = (
        "ngram_weight=0.1/0.2/0.3/0.5,budget=1..{budget}",
        "counts=text,ngram_weight=0.1/0.2/0.3/0.5,budget=1..{budget}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counts != "both" and self.text_share != _TEXT_SHARE:
            raise ValueError(f"text_share is read with counts=both alone; got text_share={self.text_share} without it")

    def tree_settings(self) -> TreeSettings:
        """Best-first, or a beam, on corrected scores; a fixed budget. With a weight of 0 it needs no counts."""
        ngram = ("ngram_weight", "counts", "text_share", "ngram", "adaptive", "renormalised")
        read = self.own_settings("budget", "top_k", *(ngram if self.ngram_weight > 0 else ()))
        return read | ({"order": BEAM, "width": self.beam_width} if self.shape == BEAM else {})
