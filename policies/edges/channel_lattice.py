"""The lattice of a root, out of whichever channel a policy reads."""

from typing import NamedTuple

from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.lattice import (
    Lattice,
    PoolLists,
    TransitionLists,
    deepest_node,
    empty_pool_lattice,
    empty_transition_lattice,
    fill_pool,
    fill_transitions,
)
from simlab.policies.edges.redrafts import BranchLists, empty_branch_lattice, fill_branches


class ChannelLists(NamedTuple):
    """What a channel says at some roots, as kernels read it; all but one are None."""

    transitions: TransitionLists | None = None
    pools: PoolLists | None = None
    branches: BranchLists | None = None

    def num_depths(self) -> int:
        """How deep the deepest node lies that there may be."""
        if self.transitions is not None:
            return int(self.transitions.num_rows.shape[1])
        if self.branches is not None:
            return max(self.branches.depth, int(self.branches.chain_ids.shape[1]))
        assert self.pools is not None
        return deepest_node(self.pools)


@kernel
def empty_lattice(
    transitions: TransitionLists | None, pools: PoolLists | None, branches: BranchLists | None
) -> Lattice:
    """A lattice to be filled by any of these roots; what is None is not even compiled."""
    if transitions is not None:
        return empty_transition_lattice(transitions)
    if branches is not None:
        return empty_branch_lattice(branches)
    assert pools is not None
    return empty_pool_lattice(pools)


@borrowing_kernel
def fill_lattice(
    lattice: Lattice,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    root: int,
) -> int:
    """The lists of one root; how many there are."""
    if transitions is not None:
        return fill_transitions(lattice, transitions, root)
    if branches is not None:
        return fill_branches(lattice, branches, root)
    assert pools is not None
    return fill_pool(lattice, pools, root)
