"""The rounds of a run as they are held against a latency profile."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from simlab.cost import STAGES
from simlab.real_runner.confirm.log import ROUND_COLUMNS
from simlab.studies.confirm.run import _timed


def run_of(policy_id: str, positions: list[int], drafted: list[int]) -> Any:  # noqa: ANN401
    """A run whose rounds took 1, 2, ... microseconds in each stage."""
    rounds = np.zeros((len(positions), len(ROUND_COLUMNS)), np.int64)
    rounds[:, ROUND_COLUMNS.index("position")] = positions
    rounds[:, ROUND_COLUMNS.index("drafted")] = drafted
    for place, stage in enumerate(STAGES):
        rounds[:, ROUND_COLUMNS.index(f"{stage}_us")] = 1 + place
    return SimpleNamespace(policy_id=policy_id, rounds=rounds)


def test_contexts_are_behind_the_prompt_and_seconds_those_of_the_log() -> None:
    prompts = [SimpleNamespace(index=7, prompt=SimpleNamespace(token_ids=np.zeros(100)))]
    prompts.append(SimpleNamespace(index=9, prompt=SimpleNamespace(token_ids=np.zeros(30))))
    sequences = [
        SimpleNamespace(index=9, runs=[run_of("a", [0, 4], [3, 2]), run_of("b", [5], [1])]),
        SimpleNamespace(index=7, runs=[run_of("a", [6], [8])]),
    ]
    setup: Any = SimpleNamespace(records=prompts)
    found = _timed(setup, sequences, "a")  # type: ignore[arg-type]
    assert found.texts.tolist() == [0, 0, 1]
    assert found.contexts.tolist() == [30, 34, 106]
    assert found.num_drafted.tolist() == [3, 2, 8]
    np.testing.assert_allclose(found.seconds, [[1e-6 * (1 + place) for place in range(len(STAGES))]] * 3)
    assert len(_timed(setup, sequences, "c").texts) == 0  # type: ignore[arg-type]
