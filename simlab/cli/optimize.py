"""``simlab optimize``: a search, or one machine's part of it."""

from simlab.studies.optimize.optimize import OptimizeResult, SummedPart, optimize, sum_part
from simlab.studies.optimize.options import OptimizeOptions


def run(options: OptimizeOptions) -> OptimizeResult | SummedPart:
    """Search; or with ``--shard`` sum up some of the prompts."""
    return optimize.run(options) if options.shard is None else sum_part.run(options)
