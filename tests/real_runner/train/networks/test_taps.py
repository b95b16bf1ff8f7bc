"""``simlab train taps`` on tiny models: its loss in plain Python, it learns, resumes to the same bytes, refuses."""

import math

import numpy as np
import pytest
import torch

from simlab.grid import to_grid
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.pool import beam_nodes
from simlab.real_runner.train.networks.taps import _along


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_along_true_paths_is_counted_by_hand(seed: int) -> None:
    """Made-up laws below made-up pools, and texts that leave them at some depth or end."""
    generator = np.random.default_rng(seed)
    depth, width = int(generator.integers(1, 4)), 3
    log_probs = to_grid(np.log(-np.sort(-generator.dirichlet(np.ones(width + 1), (2, depth)))[..., :width]))
    ids = np.stack([[generator.permutation(5)[:width] for _ in range(depth)] for _ in range(2)]).astype(np.int32)
    nodes = beam_nodes(BaseCandidates(ids, log_probs), PoolReach(int(generator.integers(1, 6)), width))
    num_parents = 1 + int((nodes.depths < depth).sum())
    conditional = torch.from_numpy(-generator.random(nodes.tokens.shape) - 0.1)
    rest = torch.from_numpy(-generator.random((2, num_parents)) - 0.1)
    truth = generator.integers(0, 5, (2, depth))
    truth[0, int(generator.integers(0, depth + 1)) :] = -1
    entropies, right, asked, missed, known = _along(nodes, conditional, rest, torch.from_numpy(truth))
    for root in range(2):
        parents, tokens = nodes.parents[root].tolist(), nodes.tokens[root].tolist()
        depths = nodes.depths.tolist()
        reached = [0.0]
        for node, parent in enumerate(parents):
            reached.append(reached[parent] + float(conditional[root, node]))
        at: int | None = 0
        for number, token in enumerate(truth[root].tolist()):
            if token < 0:
                assert not known[root, number:].any()
                assert not asked[root, number:].any()
                break
            assert asked[root, number] == (at is not None)
            own = [node for node, its in enumerate(depths) if its == number + 1]
            below = [node for node in own if parents[node] == at]
            hits = [node for node in below if tokens[node] == token]
            if at is not None:
                said = [float(conditional[root, node]) for node in below]
                expected = float(conditional[root, hits[0]]) if hits else float(rest[root, at])
                assert float(entropies[root, number]) == pytest.approx(-expected)
                assert bool(right[root, number]) == (expected == max([*said, float(rest[root, at])]))
            lost = [-reached[1 + node] if node in hits else -math.log1p(-math.exp(reached[1 + node])) for node in own]
            assert float(missed[root, number]) == pytest.approx(sum(lost))
            at = 1 + hits[0] if hits else None
