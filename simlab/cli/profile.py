"""``simlab profile``: what was measured, and whether anything was."""

import sys

from simlab.studies.profile.options import ProfileRequest
from simlab.studies.profile.profile import ProfileTable, profile


def run(options: ProfileRequest) -> ProfileTable:
    """Measure, and say on standard error where nothing was left to be measured."""
    table = profile.run(options)
    if table.num_visits == 0:
        print(f"{options.out} has {table.file.repeats} samples of everything; nothing was measured", file=sys.stderr)
    return table
