"""Result rows and verdicts of a made-up confirmation."""

import numpy as np
import polars as pl
from made_up_rows import result_row, seconds

from simlab.analysis.confirm.table import TextFindings
from simlab.traces.results.rows import results_frame

NUM_PROMPTS = 30


EXACT = TextFindings("exact", 0, 0.0, 1e-4, "", NUM_PROMPTS, NUM_PROMPTS, "", NUM_PROMPTS)


SPEEDS = {"autoregressive": 10.0, "chain": 14.0, "ddtree:budget=8": 20.0, "ddtree:budget=16": 20.2}


def results(speeds: dict[str, float] = SPEEDS, noise: float = 0.1, num_prompts: int = NUM_PROMPTS) -> pl.DataFrame:
    """Result rows of both kinds; a prompt is as slow for one policy as for another, but for the noise."""
    rng = np.random.default_rng(3)
    slowness = rng.lognormal(0, 0.5, num_prompts)
    rows = []
    for label, tokens_per_s in {**speeds, "hindsight:budget=16": 40.0}.items():
        for prompt in range(num_prompts):
            committed = 50 + prompt
            taken_s = committed / tokens_per_s * slowness[prompt]
            counts = {"rounds": 20, "drafted": committed, "verified": committed + 20, "accepted": committed - 20}
            own = {"sequence": prompt, "prompt_id": f"p{prompt}", "committed": committed, **counts}
            rows.append(result_row(label, **own, cost_id="c", **seconds(0.9 * taken_s)))
            if not label.startswith("hindsight"):
                rows.append(result_row(label, **own, kind="measured", **seconds(taken_s * rng.lognormal(0, noise))))
    return results_frame(rows)


def judged(**changes: TextFindings) -> dict[str, TextFindings]:
    return {label: changes.get(label.partition(":")[0], EXACT) for label in SPEEDS}
