"""Result rows and verdicts of a made-up confirmation."""

import numpy as np
import polars as pl

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
        name = {"autoregressive": "ar"}.get(label, label.partition(":")[0])
        for prompt in range(num_prompts):
            committed = 50 + prompt
            seconds = committed / tokens_per_s * slowness[prompt]
            shared: dict[str, object] = {
                **dict.fromkeys(("text_id", "simlab_version"), "x"),
                "stop_reason": "length",
                "policy": label,
                "policy_id": label,
                "name": name,
                "settings": "{}",
                "dataset": "d",
                "sequence": prompt,
                "prompt_id": f"p{prompt}",
                "turn": 0,
                "sample": 0,
                "context_length": 9,
                "rounds": 20,
                "drafted": committed,
                "verified": committed + 20,
                "accepted": committed - 20,
                "committed": committed,
                "clipped": 0,
            }
            whole = {"draft_s": 0.0, "channel_s": 0.0, "select_s": 0.0, "commit_s": 0.0}
            rows.append(shared | whole | {"kind": "predicted", "cost_id": "c", "verify_s": 0.9 * seconds})
            if name != "hindsight":
                measured = seconds * rng.lognormal(0, noise)
                rows.append(shared | whole | {"kind": "measured", "verify_s": measured})
    return results_frame(rows)


def judged(**changes: TextFindings) -> dict[str, TextFindings]:
    return {label: changes.get(label.partition(":")[0], EXACT) for label in SPEEDS}
