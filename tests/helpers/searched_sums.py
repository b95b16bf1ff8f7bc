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
    prompts = tuple((("math", "code")[index % 2], f"{index}") for index in range(num_prompts))
    committed = rng.integers(20, 200, num_prompts).astype(np.float64)
    hard = rng.lognormal(0, 0.3, num_prompts)
    shape = (*levels.shape, num_prompts)
    seconds = committed * hard * levels[:, :, None] * rng.lognormal(0, noise, shape)
    rounds = np.maximum(np.round(seconds), 1.0)
    drafted = rounds * np.arange(levels.shape[1], dtype=np.float64)[None, :, None]
    plain = 3 * committed * hard * np.ones((levels.shape[0], 1))
    return CandidateSums(prompts, committed, rounds, drafted, seconds, plain)


def runs_of(found: CandidateSums, places: Sequence[int], factors: Doubles | None = None) -> list[list[PolicyRun]]:
    """Result rows of some of the policies, machine by machine.

    Args:
        found: their sums.
        places: of the policies.
        factors: float64 ``[M, len(places), draws]``, of a policy's seconds at each draw of the prices; None: these
            have no draws.
    """
    keys = {
        "dataset": [dataset for dataset, _ in found.prompts],
        "prompt_id": [name for _, name in found.prompts],
        "turn": [0] * len(found.prompts),
        "sample": [0] * len(found.prompts),
        "committed": found.committed.astype(int).tolist(),
    }
    zero = dict.fromkeys(("draft_s", "channel_s", "select_s", "commit_s"), [0.0] * len(found.prompts))

    def rows(machine: int, rounds: Doubles, seconds: Doubles, drawn: Doubles | None) -> pl.DataFrame:
        lists = [None] * len(seconds) if drawn is None else np.outer(seconds, drawn).tolist()
        more = {
            "cost_id": pl.Series([f"machine {machine}"] * len(seconds)),
            "draws_s": pl.Series(lists, dtype=pl.List(pl.Float32)),
        }
        counts = {"rounds": rounds.astype(int).tolist(), "verify_s": seconds.tolist()}
        return pl.DataFrame({**keys, **counts, **zero, **more})

    machines = []
    for machine in range(len(found.rounds)):
        drawn = [None] * len(places) if factors is None else list(factors[machine])
        ones = None if factors is None else np.ones(factors.shape[2])
        plain = rows(machine, found.committed, found.plain_seconds[machine], ones)
        machines.append(
            [
                PolicyRun(
                    f"policy {index}",
                    rows(machine, found.rounds[machine, index], found.seconds[machine, index], drawn[number]),
                    plain,
                )
                for number, index in enumerate(places)
            ]
        )
    return machines
