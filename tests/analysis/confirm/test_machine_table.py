"""Tokens per second of a whole batch, as people read them."""

import math

from simlab.analysis.confirm.table import MachineSpeed, machine_table
from simlab.analysis.statistics.intervals import Interval


def test_speeds_of_all_texts_stand_below_their_heading() -> None:
    speeds = [
        MachineSpeed("autoregressive", "0", 30.06, Interval(math.nan, math.nan)),
        MachineSpeed("chain", "1", 121.25, Interval(118.5, 124.0)),
    ]
    assert [line.rstrip() for line in machine_table(speeds, 4).splitlines()] == [
        "all 4 texts together  tokens/s [95 %]",
        "autoregressive        30.1",
        "chain                 121.2 [118.5, 124.0]",
    ]
