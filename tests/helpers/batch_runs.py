"""Texts served several at a time: who is in which round, what that costs, and confirmations of it on tiny models."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import confirm_runs
from confirm_runs import LABELS, Made
from made_up_costs import filled

from simlab.cli.main import main
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.profile.rounds import setting_of
from simlab.traces.artefacts.cost import CostFile, write_cost_file

NUM_PROMPTS = 5
ASKED = ("ddtree:budget=8", "joint:budget=6")
ALL = (*LABELS, "joint:budget=6")
GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
"""Places in the trace of the texts that are served together, two at a time: five prompts of two turns."""


def turns_of(num_rounds: Sequence[int], batch: int) -> list[list[int]]:
    """The texts in each round of the batch, numbered as they come: a server in plain Python.

    Args:
        num_rounds: of each text of the group.
        batch: texts at a time.
    """
    numbers, running, found = count(), dict[int, int](), list[list[int]]()
    left = sum(num_rounds)
    while left:
        while len(running) < batch:
            number = next(numbers)
            if num_rounds[number % len(num_rounds)]:
                running[number] = num_rounds[number % len(num_rounds)]
        found.append(list(running))
        left -= sum(number < len(num_rounds) for number in running)
        running = {number: num - 1 for number, num in running.items() if num > 1}
    return found


def cost_of(made: Made, batch: int) -> CostFile:
    """Made-up prices of just these models on this machine."""
    setup = confirm_runs.setup_of(made, ConfirmOptions(made.folder / "unused"))
    file = setting_of(setup.models, "d", "float32", "cpu", setup.sampling)
    file = replace(file, contexts=(16, 512), node_counts=(0, 4, 16), repeats=3, batch=batch)
    return filled(file)


def write_costs(made: Made) -> dict[int, Path]:
    """Cost files of one text and of two at a time."""
    paths = {batch: made.folder / f"cost{batch}.json" for batch in (1, 2)}
    for batch, path in paths.items():
        write_cost_file(path, cost_of(made, batch))
    return paths


def run(made: Made, out: Path, *more: str) -> int:
    asked = [part for one in ASKED for part in ("-p", one)]
    return main(["confirm", "--trace", str(made.folder / "trace"), *asked, "--out", str(out), *more])
