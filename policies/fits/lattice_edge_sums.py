"""What the lists of a channel say of the candidates below true paths, and which of these came true.

As `simlab.policies.fits.edge_sums` has it for models of edges by depth; here every node has a list of its own.
"""

from simlab.arrays import Longs
from simlab.jit import kernel
from simlab.policies.edges.channel_lattice import empty_lattice, fill_lattice
from simlab.policies.edges.children import ELSEWHERE, SPINE
from simlab.policies.edges.lattice import (
    LEAF,
    Lattice,
    PoolLists,
    TransitionLists,
    find_token,
)
from simlab.policies.edges.redrafts import BranchLists
from simlab.policies.fits.edge_sums import EdgeSums, count_candidate
from simlab.policies.orders.lattice_sources import LatticeSource
from simlab.recorded import RecordedTexts, Roots


def add_lattice_edges(sums: EdgeSums, texts: RecordedTexts, source: LatticeSource, width: int, prompts: Longs) -> None:
    """Add the candidates of all roots of some texts, in place.

    A path is true as far as its tokens stand in lists that lie one below the other, and known as far as the text goes.
    A node without a list is not asked. Ranks are places in the list; a node is on the spine where the drafter's first
    candidates alone reach it.

    Args:
        sums: to be added to.
        texts: with draft rows and the channel.
        source: whose lists they are; its scores are log-probabilities.
        width: at most so many candidates of a list are looked at.
        prompts: int64 ``[S]``, the place in ``sums`` of each text's prompt.
    """
    lists = source.at_roots(texts)
    _add(texts.drafted(), *lists, width, prompts, sums)


@kernel
def _add(
    roots: Roots,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    width: int,
    prompts: Longs,
    sums: EdgeSums,
) -> None:
    """All roots; what is None is not even compiled."""
    lattice = empty_lattice(transitions, pools, branches)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            fill_lattice(lattice, transitions, pools, branches, root)
            _add_path(lattice, width, roots, text, root, prompts[text], sums)


@kernel
def _add_path(lattice: Lattice, width: int, roots: Roots, text: int, root: int, prompt: int, sums: EdgeSums) -> None:
    """The candidates below each node of the true path of one root."""
    number, place, first = 0, SPINE, roots.places[root] + 1
    for depth in range(min(roots.counts.shape[1], roots.firsts[text + 1] - root)):
        true_token = int(roots.tokens[first + depth])
        start, end = lattice.starts[number], min(lattice.ends[number], lattice.starts[number] + width)
        sums.nodes[prompt, place, depth] += 1
        for at in range(start, end):
            is_true = lattice.tokens[at] == true_token
            count_candidate(sums, prompt, place, depth, at - start, lattice.costs[at], is_true)
        found = find_token(lattice, number, true_token)
        if found < 0 or found >= end or lattice.below[found] == LEAF:
            break
        number = lattice.below[found]
        if roots.true_ranks[root, depth] != 0:
            place = max(place, ELSEWHERE)
