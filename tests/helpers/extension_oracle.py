"""JetSpec's tree with a chain below its leaf, in plain Python; it shares no code with what it checks."""

from fractions import Fraction

import lattice_oracle
import oracle
import shape_oracles

Branch = list[tuple[int, float]]
"""The first token of each row behind the whole chain, and its log-probability."""


def is_sure(rows: list[oracle.Row], gap: float) -> bool:
    """Whether the mean gap between the first two candidates of each depth is above a bound."""
    if any(len(row) < 2 for row in rows):
        return False
    return sum(Fraction(float(row[0][1])) - Fraction(float(row[1][1])) for row in rows) / len(rows) > Fraction(gap)


def extends(rows: list[oracle.Row], width: int, tree_budget: int, gap: float) -> bool:
    """Whether the drafter is run once more at a root."""
    whole = (0,) * len(rows)
    return whole in shape_oracles.expand_parent(rows, [width] * len(rows), tree_budget) and is_sure(rows, gap)


def nodes(
    rows: list[oracle.Row], branch: Branch, width: int, tree_budget: int, gap: float, length: int
) -> list[lattice_oracle.Node]:
    """The tree in its order, and below the whole chain the first tokens of the branch."""
    found: list[lattice_oracle.Node] = []
    for path in shape_oracles.expand_parent(rows, [width] * len(rows), tree_budget):
        pairs = [rows[depth][rank] for depth, rank in enumerate(path)]
        cost = sum(lattice_oracle.steps(log_prob) for _, log_prob in pairs)
        found.append((cost, path, tuple(token for token, _ in pairs)))
    if extends(rows, width, tree_budget, gap):
        cost, ranks, tokens = next(one for one in found if one[1] == (0,) * len(rows))
        for token, log_prob in branch[:length]:
            cost, ranks, tokens = cost + lattice_oracle.steps(log_prob), (*ranks, 0), (*tokens, token)
            found.append((cost, ranks, tokens))
    return found
