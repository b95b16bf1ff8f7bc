"""A cluster of several nodes on this machine: one of them is removed in the middle, and nothing is lost."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import ray
import tiny_models
import torch
from ray._private.node import Node
from ray.cluster_utils import Cluster
from ray_jobs import Squares
from tiny_recordings import bytes_of, options_of

from simlab.real_runner.record.record import record
from simlab.workers.on_ray import RayOptions, workers_on
from simlab.workers.threads import ignore_progress

NUM_SHARDS = 12


@contextmanager
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Node]]:
    """A head without cores, and two nodes with one core each, of which the second may be removed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(one for one in sys.path if one))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Node]]:
    with two_nodes(monkeypatch) as found:
        yield found


@pytest.mark.thorough
def test_a_job_goes_on_without_the_node(cluster: tuple[Cluster, Node], tmp_path: Path) -> None:
    nodes, second = cluster
    with workers_on(RayOptions(str(nodes.address), workers=2)) as workers:
        values = workers.results(Squares(tmp_path, wait_s=0.05), range(30), ignore_progress)
        found = [next(values)]
        while len(list(tmp_path.glob("opened-*"))) < 2:
            found.append(next(values))
        nodes.remove_node(second)
        found += values
    assert found == [number * number for unit in range(30) for number in range(unit + 1)]


@pytest.mark.thorough
def test_a_recording_goes_on_without_the_node(cluster: tuple[Cluster, Node], tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tiny_models.make_pair(tmp_path)
        tiny_models.write_prompts(tmp_path / "prompts.jsonl", 2 * NUM_SHARDS, num_turns=2)
        options = options_of(tmp_path, tmp_path / "one")
        record(options)
        nodes, second = cluster
        out, removed = tmp_path / "two", threading.Event()

        def remove() -> None:
            while not list((out / "unfinished").glob("sequences-*.parquet")):
                if removed.wait(0.005):
                    return
            nodes.remove_node(second)
            removed.set()

        thread = threading.Thread(target=remove)
        thread.start()
        try:
            record(replace(options, out=out, ray=nodes.address, workers=2))
            assert removed.is_set()
        finally:
            removed.set()
            thread.join()
    finally:
        torch.set_num_threads(before)
    assert bytes_of(tmp_path / "two") == bytes_of(tmp_path / "one")
