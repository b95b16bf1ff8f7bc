"""The contract of policies that read channels, on channels that are made up with the settings they declare."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from simlab import ChannelNeed, Draft, DraftTree, Needs, Pool, Stateless, Transitions
from simlab.testing import check_policy

FLASH = ChannelNeed("flash", "transitions", (("previous", 3), ("top_k", 2)))
EAGLE = ChannelNeed("eagle", "pool", (("depth", 3),), (("beam", 2), ("top_k", 4)))
EXACT = ChannelNeed("eagle", "pool", (("exact_nodes", 5),), (("depth", 4), ("top_k", 2)))


@dataclass(frozen=True, slots=True)
class Follow(Stateless):
    """The best token, then the best after it, as far as rows go."""

    budget: int = 4
    needs: Needs = field(default_factory=lambda: Needs(top_k=3, channels=(FLASH,)))
    shift: int = 0

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        found = draft.channel("flash")
        assert isinstance(found, Transitions)
        assert found.ids.shape[1] == 2
        assert found.num_rows.max() <= 3
        ends, token, path = np.cumsum(found.num_rows), int(found.ids[0, 0]), []
        for depth in range(1, found.depth + 1):
            path.append(token + self.shift)
            rows = range(int(ends[depth - 1]), int(ends[depth]) if depth < found.depth else 0)
            own = [row for row in rows if found.previous[row - 1] == token]
            if not own or len(path) == self.budget:
                break
            token = int(found.ids[own[0], 0])
        return DraftTree.chain(draft.root_token, path)


@dataclass(frozen=True, slots=True)
class Best(Stateless):
    """The most probable nodes of a pool, without a drafter."""

    budget: int = 5
    needs: Needs = field(default_factory=lambda: Needs(draft=False, channels=(EXACT,)))
    careless: bool = False

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        assert draft.marginals is None
        pool = draft.channel("eagle")
        assert isinstance(pool, Pool)
        if self.careless:
            pool.tokens[:1] = 0
        scores = [0.0]
        for parent, log_prob in zip(pool.parents.tolist(), pool.log_probs.tolist(), strict=True):
            scores.append(scores[parent] + log_prob)
        best = sorted(range(1, len(scores)), key=lambda node: (-scores[node], node))[: self.budget]
        numbers = {0: 0} | {node: index for index, node in enumerate(sorted(best), 1)}
        tokens = [draft.root_token, *(int(pool.tokens[node - 1]) for node in sorted(best))]
        parents = [-1, *(numbers[int(pool.parents[node - 1])] for node in sorted(best))]
        return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32))


def test_policies_that_keep_their_word() -> None:
    check_policy(Follow())
    check_policy(Best())
    check_policy(Best(needs=Needs(draft=False, channels=(EAGLE,))))


def test_a_token_that_no_channel_scored_is_found() -> None:
    with pytest.raises(AssertionError, match="not among the candidates it may read there"):
        check_policy(Follow(shift=1000))


def test_a_channel_that_was_changed_is_found() -> None:
    with pytest.raises(AssertionError, match="changed the draft it was given"):
        check_policy(Best(careless=True))


def test_a_tree_deeper_than_what_is_scored_is_found() -> None:
    @dataclass(frozen=True, slots=True)
    class Deep(Stateless):
        budget: int = 9
        needs: Needs = field(default_factory=lambda: Needs(draft=False, channels=(EXACT,)))

        def select(self, draft: Draft, state: None = None) -> DraftTree:
            pool = draft.channel("eagle")
            assert isinstance(pool, Pool)
            return DraftTree.chain(draft.root_token, [int(pool.tokens[0])] * 9)

    with pytest.raises(AssertionError, match="not among the candidates|tokens deep; the drafter proposed"):
        check_policy(Deep())
