"""Progress of a study: a bar on standard error, after two seconds, where somebody looks."""

import sys

from tqdm import tqdm


def progress_bar(
    wanted: bool | None, task: str, unit: str, total: int | None = None, unit_scale: bool = False, initial: int = 0
) -> tqdm:
    """Make a bar that shows after two seconds.

    Args:
        wanted: whether it is shown; None: on a terminal.
        task: what is being done.
        unit: what is counted.
        total: how many of it; None: not known.
        unit_scale: whether large numbers are shortened.
        initial: how many were done before.
    """
    shown = sys.stderr.isatty() if wanted is None else wanted
    return tqdm(total=total, desc=task, unit=unit, unit_scale=unit_scale, initial=initial, delay=2, disable=not shown)
