"""Made-up cost files and tables: no machine was timed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simlab.cost import CHANNEL, GRID_STAGES, PLAIN, ChannelSeconds, CostTable
from simlab.traces.artefacts.cost import Cell, CostFile, write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo

SYNTHETIC = ModelInfo("synthetic", "", "synthetic")
"""Target and drafter of the made-up traces of synthetic_traces."""

EMPTY = CostFile(
    device="Made-up CPU",
    threads=2,
    system="Linux x86_64",
    target=SYNTHETIC,
    drafter=SYNTHETIC,
    block_size=8,
    dtype="float32",
    attention="sdpa",
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    versions={"numba": "0.1", "torch": "2.0.0", "transformers": "5.0"},
    contexts=(16, 64, 256),
    node_counts=(0, 1, 8, 64),
    repeats=3,
)
"""Fits the made-up traces; nothing was timed yet."""

BASE_S = {"draft": 0.004, "select": 0.0002, "verify": 0.010, "commit": 0.0005, PLAIN: 0.011, CHANNEL: 0.003}


def sample_s(stage: str, num_drafted: int, context: int) -> float:
    """Seconds that rise with drafted tokens and context, not in a straight line."""
    return (
        BASE_S[stage.partition(":")[0]]
        * (1 + 0.02 * num_drafted + 0.001 * num_drafted * math.sqrt(num_drafted))
        * (1 + (context / 500) ** 2)
    )


def filled(file: CostFile = EMPTY) -> CostFile:
    """The file with three samples in each cell, two of `sample_s` and an outlier."""
    samples: dict[Cell, tuple[float, ...]] = {}
    for cell in file.cells():
        samples[cell] = (sample_s(*cell), sample_s(*cell), 3 * sample_s(*cell))
    return replace(file, samples=samples)


def two_machines(folder: Path) -> tuple[CostFile, CostFile]:
    """Write ``dear.json``, where drafted tokens cost much, and ``free.json``, where they are free."""
    other = replace(EMPTY, device="Another CPU")
    free_s = {cell: 0.01 + 1e-9 * cell[1] for cell in other.cells()}  # the same everywhere would be refused
    samples = {cell: (1.0 if cell[0] == PLAIN else free_s[cell],) * 3 for cell in other.cells()}
    dear, free = filled(), replace(filled(other), samples=samples)
    for name, file in (("dear", dear), ("free", free)):
        write_cost_file(folder / f"{name}.json", file)
    return dear, free


def random_table(generator: np.random.Generator, most_drafted: int = 20, longest: int = 60) -> CostTable:
    """A table of random seconds, so that no two entries are alike."""
    num_contexts = int(generator.integers(1, 5))
    contexts = np.sort(generator.choice(np.arange(1, longest), num_contexts, replace=False))
    contexts[-1] = longest
    seconds = {stage: generator.random((num_contexts, most_drafted + 1)) for stage in GRID_STAGES}
    seconds[PLAIN] = generator.random((num_contexts, 1))
    return CostTable("made-up", contexts, seconds)


def with_channel(
    generator: np.random.Generator, most_drafted: int, longest: int, name: str, units: Sequence[int]
) -> CostTable:
    """A random table with a channel, and one drawn again with other seconds of everything."""
    table = random_table(generator, most_drafted, longest)
    drawn = {stage: generator.random(values.shape) for stage, values in table.seconds.items() if stage != CHANNEL}
    shape = len(table.contexts), len(units)
    first, other = (ChannelSeconds(np.array(units), generator.random(shape)) for _ in range(2))
    again = replace(table, seconds=drawn, channels={name: other})
    return replace(table, channels={name: first}, draws=(again,))
