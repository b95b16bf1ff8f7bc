"""Qwen3-8B with DFlash and its trees on GSM8K, measured by another group: which of the published figures are near it.

The records are of the released code of CaDDTree (arXiv 2606.01813) on 50 questions. A prompt has a mean and a speed;
rounds are released summed over all prompts only.
"""

import polars as pl

from simlab.analysis.table.estimates import Estimate
from simlab.studies.reproduce.domino import records
from simlab.studies.reproduce.domino.records import METHODS, MODELS, REFERENCE_PROGRAM
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import DDTREE_GSM8K, ZLAB_166
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, compared_text, flat

MODEL = MODELS[1]
DATASET, TEMPERATURE = "gsm8k", "0.0"
PROMPTS = f"{MODEL.raw}/{REFERENCE_PROGRAM}/{DATASET}_T{TEMPERATURE}.jsonl"
SUMS = f"{MODEL.summaries[TEMPERATURE]}/{DATASET}_T{TEMPERATURE}.pt.summary.json"

_MEASURES = {"acceptance_length": "pooled", "acceptance_length_macro": "macro", "speedup": "speedup"}
_COMPARED = (
    ("macro", "macro average (per response)", "tau"),
    ("pooled", "pooled", "tau"),
    ("speedup", "speedup, mean of prompts", "speedup"),
)
"""Measures, as they are printed, and the column of their table beside which each stands."""

ELSEWHERE = tuple(
    (source, _MEASURES[figure.measure], figure.value)
    for source, study in (("issue #166 of z-lab/dflash", ZLAB_166), ("DDTree, arXiv 2604.12989", DDTREE_GSM8K))
    for figure in study.figures
    if figure.policy == "chain"
)
"""What others print of DFlash with Qwen3-8B on GSM8K: source, measure and value."""


def domino_gsm8k(files: ReleasedFiles, _options: ReproduceOptions) -> Findings:
    """Both means and the speedup of each method, beside their table and beside figures of other pages."""
    turns = records.read_turns(files, {PROMPTS: {"dataset": DATASET}}).sort("prompt", maintain_order=True)
    is_plain = pl.col("method") == "baseline"
    plain = turns.filter(is_plain).select("prompt", plain="tokens_per_s")
    turns = turns.join(plain, on="prompt", maintain_order="left")
    sums = {row["method"]: row["committed"] / row["rounds"] for row in records.summary_rows(files, SUMS)}
    # The speedup: the mean over prompts of tokens per second, over that of autoregressive decoding, paired.
    figures = {"macro": records.MACRO, "speedup": {"tokens_per_s": 1, "plain": -1}}
    rows = records.rows_by(turns.filter(~is_plain), ["method"], figures)
    ours = {METHODS[row["method"]]: row | {"pooled": Estimate(sums[row["method"]])} for row in rows}
    compared = [
        ComparedFigure(
            f"{name}: {label}",
            own[measure],
            files.quoted_cell(MODEL.table("table1_cells"), column, temp=TEMPERATURE, dataset=DATASET, method=name),
        )
        for name, own in ours.items()
        for measure, label, column in _COMPARED
    ]
    dflash = ours["DFlash"]
    # The records are others than those of the pages.
    beside = [
        ComparedFigure(
            f"{source}: DFlash, {measure}", dflash[measure], Quoted(value, source, "", measure), same_records=False
        )
        for source, measure, value in ELSEWHERE
    ]
    elsewhere = [
        {"source": source, "method": "DFlash", "measure": measure, "theirs": value}
        | flat({"here": figure.ours, "within_interval": figure.is_within})
        for figure, (source, measure, value) in zip(beside, ELSEWHERE, strict=True)
    ]
    return Findings(
        compared,
        [f"Printed elsewhere of the same models and dataset, beside these records:\n{compared_text(beside)}"],
        {
            "prompts": dflash["macro"].prompts,
            "ar_tokens_per_s": round(plain.select(pl.mean("plain")).item(), 3),
            "macro_over_pooled": {
                name: round(own["macro"].value / own["pooled"].value, 5) for name, own in ours.items()
            },
            "elsewhere": elsewhere,
        },
    )
