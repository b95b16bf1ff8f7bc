"""Made-up sums of policies on prompts, with and without a best one."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from simlab.analysis.optimize.candidate_sums import CandidateSums
from simlab.analysis.table.prompt_sums import PolicyRun

Doubles = npt.NDArray[np.float64]


def made_up(rng: np.random.Generator, levels: Doubles, num_prompts: int, noise: float = 0.1) -> CandidateSums:
    """Policies whose seconds are a level of their own times noise; on each prompt its own noise too.

    Args:
        levels: float64 ``[M, P]``, seconds per token.
    """
    prompts = tuple((("math", "code")[place % 2], f"{place}") for place in range(num_prompts))
    committed = rng.integers(20, 200, num_prompts).astype(np.float64)
    hard = rng.lognormal(0, 0.3, num_prompts)
    shape = (*levels.shape, num_prompts)
    seconds = committed * hard * levels[:, :, None] * rng.lognormal(0, noise, shape)
    rounds = np.maximum(np.round(seconds), 1.0)
    drafted = rounds * np.arange(levels.shape[1], dtype=np.float64)[None, :, None]
    plain = 3 * committed * hard * np.ones((levels.shape[0], 1))
    return CandidateSums(prompts, committed, rounds, drafted, seconds, plain)


def runs_of(found: CandidateSums, places: Sequence[int]) -> list[list[PolicyRun]]:
    """Result rows of some of the policies, machine by machine."""
    keys = {
        "dataset": [dataset for dataset, _ in found.prompts],
        "prompt_id": [name for _, name in found.prompts],
        "turn": [0] * len(found.prompts),
        "sample": [0] * len(found.prompts),
        "committed": found.committed.astype(int).tolist(),
    }
    zero = dict.fromkeys(("draft_s", "select_s", "commit_s"), [0.0] * len(found.prompts))

    def rows(rounds: Doubles, seconds: Doubles) -> pl.DataFrame:
        return pl.DataFrame(keys | {"rounds": rounds.astype(int).tolist(), "verify_s": seconds.tolist()} | zero)

    machines = []
    for machine in range(len(found.rounds)):
        plain = rows(found.committed, found.plain_seconds[machine])
        machines.append(
            [
                PolicyRun(f"policy {place}", rows(found.rounds[machine, place], found.seconds[machine, place]), plain)
                for place in places
            ]
        )
    return machines
