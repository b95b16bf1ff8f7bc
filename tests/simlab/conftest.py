"""A made-up trace and made-up latencies of its models, on which studies and commands are tried."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_costs import filled
from synthetic_traces import write_synthetic_trace

from simlab.cost import PLAIN
from simlab.traces.artefacts.cost import write_cost_file


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine prompts, three of two turns."""
    return write_synthetic_trace(tmp_path_factory.mktemp("made-up") / "trace", num_sequences=12, length=40)


@pytest.fixture(scope="session")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cost file for the models of the trace."""
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, filled())
    return path


@pytest.fixture(scope="session")
def served_costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Cost files of 1, 4, 16 and 64 texts at a time: each drafted token costs more, the more texts there are."""
    folder, file, paths = tmp_path_factory.mktemp("served"), filled(), {}
    for batch, each_s in ((1, 1e-8), (4, 0.002), (16, 0.012), (64, 0.03)):
        samples = {
            cell: tuple(0.012 + each_s * cell[1] if cell[0] in ("verify", PLAIN) else 0.0001 for _ in values)
            for cell, values in file.samples.items()
        }
        paths[batch] = folder / f"of_{batch}.json"
        write_cost_file(paths[batch], replace(file, batch=batch, samples=samples))
    return paths
