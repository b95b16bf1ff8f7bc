"""The sizes of passes that are captured once and replayed: a tree or a context takes the next larger one.

A CUDA graph does the same work each time, so a pass of 17 nodes runs as one of 24. Steps are small where trees are
small, since a pass costs what its size costs.
"""

_ROW_STEPS = ((128, 8), (512, 32))
_CONTEXT_STEPS = ((2048, 256), (8192, 1024))
_LAST_ROW_STEP, _LAST_CONTEXT_STEP = 128, 4096


def rows_for(num_nodes: int) -> int:
    """Rows of the target's pass over a tree, its root counted.

    >>> [rows_for(num_nodes) for num_nodes in (1, 2, 8, 9, 17, 129, 513)]
    [1, 8, 8, 16, 24, 160, 640]
    """
    return 1 if num_nodes <= 1 else _next(num_nodes, _ROW_STEPS, _LAST_ROW_STEP)


def context_for(length: int) -> int:
    """Tokens that a pass attends to, those that it masks counted.

    >>> [context_for(length) for length in (1, 256, 257, 2049)]
    [256, 256, 512, 3072]
    """
    return _next(max(length, 1), _CONTEXT_STEPS, _LAST_CONTEXT_STEP)


def node_counts_at_steps(most: int) -> tuple[int, ...]:
    """Numbers of drafted tokens at both ends of each size, where prices step; 0 and ``most`` among them.

    >>> node_counts_at_steps(20)
    (0, 1, 7, 8, 15, 16, 20)
    """
    ends = {drafted for drafted in range(most) if rows_for(drafted + 1) != rows_for(drafted + 2)}
    return tuple(sorted({0, most} | ends | {end + 1 for end in ends}))


def _next(number: int, steps: tuple[tuple[int, int], ...], last: int) -> int:
    step = next((step for up_to, step in steps if number <= up_to), last)
    return -(-number // step) * step
