"""A confirmation of which no model ran: rounds of the packaged trace, with seconds that were made up for the run."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from confirm_results import EXACT
from made_up_optimum import OPTIMUM

from simlab.analysis.confirm.errors import TimedRounds, prediction_errors, staleness
from simlab.analysis.confirm.table import (
    TextFindings,
    compare_winner,
    confirmed_policies,
    measured_runs,
    rank_agreement,
)
from simlab.ids import VERSION
from simlab.studies.confirm.choice import PriorChoice
from simlab.studies.confirm.confirmation import Confirmation, RunFacts
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.confirmation import RESULTS, SUMMARY
from simlab.traces.format.documents import with_digest
from simlab.traces.results.files import write_results
from simlab.traces.results.rows import joined_results

COST = "smollm2-135m-epyc-float32"
POLICIES = ("chain", "ddtree:budget=8", "ddtree:budget=16", "caddtree")
NUM_PROMPTS = 24
TIES = TextFindings("ties(2)", 2, 3e-5, 1e-4, "", NUM_PROMPTS, NUM_PROMPTS, "", NUM_PROMPTS - 1)
"""Of texts of which two tokens are close calls."""

DIFFERENCE = {"kind": "round", "policy": "chain", "prompt_id": "gsm8k/3", "turn": 0, "says": "2 rounds are made up"}


def _measured(predicted: pl.DataFrame) -> pl.DataFrame:
    """The rows of what could run, slower by 5 %, and off by some more for each text and stage."""
    rng = np.random.default_rng(7)
    rows = predicted.filter(~pl.col("policy").str.starts_with("hindsight"))
    noisy = [
        (pl.col(name) * pl.Series(1.05 * rng.lognormal(0, 0.04, rows.height))).alias(name)
        for name, dtype in rows.schema.items()
        if name.endswith("_s") and dtype == pl.Float64
    ]
    unknown = pl.lit(None, rows.schema["cost_id"]).alias("cost_id")
    return rows.with_columns(*noisy, unknown, pl.lit("measured").cast(rows.schema["kind"]).alias("kind"))


def _rounds(num_drafted: Sequence[int], slower: float) -> TimedRounds:
    """Forty rounds of each size, in two texts."""
    sizes = np.repeat(np.asarray(num_drafted, dtype=np.int64), 40)
    texts, contexts = np.arange(len(sizes)) % 2, 100 + np.arange(len(sizes)) % 50
    seconds = np.outer(1 + sizes / 50, [0.004, 0.0, 0.0002, 0.03, 0.0005]) * slower
    return TimedRounds(texts.astype(np.int64), contexts.astype(np.int64), sizes, seconds)


def write_confirmation(folder: Path) -> str:
    """Write the files of a confirmation into a new folder; what it says."""
    table = replay(policies=POLICIES, limit=NUM_PROMPTS, cost=COST, progress=False)
    predicted, trace = table.rows, table.trace
    rows = joined_results([predicted, _measured(predicted)])
    ids = dict(predicted.select("policy_id", "policy").unique().iter_rows())
    ran = {policy_id: label for policy_id, label in ids.items() if not label.startswith("hindsight")}
    judged = {policy_id: TIES if label == "caddtree" else EXACT for policy_id, label in ran.items()}
    (prices,) = table.prices
    assert prices.cost is not None
    policies = confirmed_policies(rows, judged)
    first = next(policy for policy in policies if policy.policy == "ddtree:budget=16")
    confirmation = Confirmation(
        simlab_version=VERSION,
        text_id=trace.text_id,
        draft_ids={table.draft: trace.draft_ids[table.draft]},
        prices=prices,
        heading="trace    made up",
        ran=RunFacts(
            machine={"device": "cpu", "threads": 2, "dtype": "float32", "execution": "eager", "fixed_rows": 0},
            versions={"torch": "2.0"},
            prompts=NUM_PROMPTS,
            prompt_runs=NUM_PROMPTS + 3,
            ended="interval",
            half_width=0.0312,
            until_interval=0.04,
            time_limit_s=600.0,
            bound=1e-4,
        ),
        policies=tuple(policies),
        won=compare_winner(policies, rows, first.predicted.policy_id),
        errors=tuple(prediction_errors(rows)),
        order=rank_agreement(
            measured_runs(policies, rows),
            {policy.policy: policy.predicted.speed.tokens_per_s for policy in policies},
        ),
        differences=(DIFFERENCE,),
        in_sample=("caddtree",),
        by="dataset",
        chosen=PriorChoice(Path("optimum.json"), OPTIMUM, first.predicted.policy_id, ("ddtree:budget=16",)),
        slices=tuple(confirmed_policies(rows, judged, "dataset")),
        stale=staleness(_rounds([0], 1.1), [(_rounds([8, 16], 1.3), prices.cost)], prices.cost),
    )
    folder.mkdir()
    write_results(folder / RESULTS, rows, trace.sequence_counts)
    summary = with_digest(confirmation.to_json())
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return confirmation.text()
