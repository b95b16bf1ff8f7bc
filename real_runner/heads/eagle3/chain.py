"""An EAGLE-3 head as a drafter: its laws along its own most probable path, as serving engines draft a chain with it.

Li and others 2025, "EAGLE-3", arXiv 2503.01840. The law of depth d is that behind the first tokens of the depths above,
so a row is a function of the text up to its root, as a block drafter's row is; of the product of the laws only the
chain itself is the head's own probability.

Letters: N roots, D depths, V_d tokens of the head.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.draft import Marginals
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead, columns_of, first_candidates, first_marginals
from simlab.real_runner.heads.eagle3.head import Eagle3Head
from simlab.real_runner.heads.eagle3.pool import Eagle3Reach, Growth, roots_per_pass
from simlab.real_runner.heads.eagle3.text import GrowingText, ReadText, read_text
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns

_ROOTS_PER_PASS = 64
"""Laws of so many roots are held at a time, at most."""


@torch.inference_mode()
def chain_logits(head: Eagle3Head, target: Target, roots: Tensor, text: ReadText) -> Tensor:
    """The head's logits below some roots of one text, each depth behind the first tokens of those above.

    Args:
        head: and its target, whose embedding and output head it may borrow.
        target: see there.
        roots: int64 ``[N]``, absolute positions.
        text: of it what lies before a root is seen; its outputs ``[N, H]`` are those at the position before each root.

    Returns:
        float32 ``[N, D, V_d]``, in the head's own vocabulary, where it has one.
    """
    growth = Growth(head, target, roots, text.outputs[:, None], text.past, 1)
    above, laws = np.zeros((len(roots), 1), np.int64), [growth.logits()]
    while len(laws) < head.config.depth:
        growth.step(_first_tokens(head, laws[-1]), above)
        laws.append(growth.logits())
    return torch.cat(laws, dim=1)


def _first_tokens(head: Eagle3Head, logits: Tensor) -> Ints:
    """The first candidates ``[N, 1]`` of laws ``[N, 1, V_d]``, in the order of rows, as ids of the target."""
    ids, _ = first_candidates(logits[:, 0].log_softmax(-1), 1)
    return ids if head.vocabulary is None else head.vocabulary.to_target(ids)


def chain_columns(
    head: Eagle3Head, target: Target, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates
) -> DraftColumns:
    """The head's rows at every root of one text; see `simlab.real_runner.drafters.ranked.draft_columns`."""
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    parts = _chains(head, target, features, tokens, roots)
    return columns_of(parts, head.vocabulary, head.config.depth, tokens, kept)


@torch.inference_mode()
def _chains(
    head: Eagle3Head, target: Target, features: Tensor, tokens: Tensor, roots: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    if len(roots) == 0:
        return
    last = len(tokens) - 1
    text = read_text(head, target, features[: last - 1], tokens[1:last], None)
    per_pass = min(_ROOTS_PER_PASS, roots_per_pass(head, Eagle3Reach(1, 1, max(1, head.config.depth - 1)), len(tokens)))
    for some in roots.split(per_pass):
        yield some, chain_logits(head, target, some, ReadText(text.past, text.outputs[some - 1]))


class LiveChain:
    """The head as the drafter of one text that is being written."""

    def __init__(self, head: Eagle3Head, target: Target, read: CandidatesRead) -> None:
        """Begin with nothing read of the text.

        Args:
            head: the drafter.
            target: see there.
            read: what is given at each depth.
        """
        self._head, self._target, self._wanted = head, target, read
        self._text = GrowingText(head, target)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H_t]`` of further tokens of the text."""
        self._text.read(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; see `GrowingText.rewind`."""
        self._text.rewind(length)

    @torch.inference_mode()
    def marginals(self, committed: Ints) -> Marginals:
        """The first candidates at each depth below the last of the tokens of prompt and text, int32."""
        text = self._text.up_to_root(committed)
        roots = torch.tensor([len(committed) - 1], device=text.outputs.device)
        logits = chain_logits(self._head, self._target, roots, ReadText(text.past, text.outputs[-1:]))
        found = first_marginals(logits[0], self._wanted)
        return found if self._head.vocabulary is None else self._head.vocabulary.in_target(found)
