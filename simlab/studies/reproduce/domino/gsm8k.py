"""Qwen3-8B with DFlash and its trees on GSM8K, measured by another group: which of the published figures are near it.

The records are of the released code of CaDDTree (arXiv 2606.01813) on 50 questions. A prompt has a mean and a speed;
rounds are released summed over all prompts only.
"""

import polars as pl

from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.studies.reproduce.domino.records import (
    METHODS,
    MODELS,
    REFERENCE_PROGRAM,
    program_sums,
    program_turns,
)
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import DDTREE_GSM8K, ZLAB_166
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, Row, compared_text

MODEL = MODELS[1]
DATASET, TEMPERATURE = "gsm8k", "0.0"
PROMPTS = f"{MODEL.raw}/{REFERENCE_PROGRAM}/{DATASET}_T{TEMPERATURE}.jsonl"
SUMS = f"{MODEL.summaries[TEMPERATURE]}/{DATASET}_T{TEMPERATURE}.pt.summary.json"

_PLAIN = "baseline"
_MEASURES = {"acceptance_length": "pooled", "acceptance_length_macro": "macro", "speedup": "speedup"}
_MACRO, _POOLED = "macro average (per response)", "pooled"

ELSEWHERE = tuple(
    (source, _MEASURES[figure.measure], figure.value)
    for source, study in (("issue #166 of z-lab/dflash", ZLAB_166), ("DDTree, arXiv 2604.12989", DDTREE_GSM8K))
    for figure in study.figures
    if figure.policy == "chain"
)
"""What others print of DFlash with Qwen3-8B on GSM8K: source, measure and value."""


def domino_gsm8k(files: ReleasedFiles, _options: ReproduceOptions) -> Findings:
    """Both means and the speedup of each method, beside their table and beside figures of other pages."""
    prompts, methods = _prompts(files), {key: name for key, name in METHODS.items() if key != _PLAIN}
    released = program_sums(files, MODEL, TEMPERATURE, datasets=(DATASET,))
    sums = {row["method"]: row["committed"] / row["rounds"] for row in released.to_dicts()}
    plain = prompts[_PLAIN]["tokens_per_s"]
    ours: dict[str, dict[str, Estimate]] = {
        method: {
            "macro": prompt_ratio(prompts[method], mean=1, one=-1),
            "pooled": Estimate(sums[method]),
            # The mean over prompts of tokens per second, over that of autoregressive decoding, paired.
            "speedup": prompt_ratio(prompts[method].with_columns(plain.alias("plain")), tokens_per_s=1, plain=-1),
        }
        for method in methods
    }
    compared = []
    for method, name in methods.items():
        row = {"temp": TEMPERATURE, "dataset": DATASET, "method": name}
        tau, speedup = (files.quoted_cell(MODEL.cells, column, **row) for column in ("tau", "speedup"))
        compared += [
            ComparedFigure(f"{name}: {_MACRO}", ours[method]["macro"], tau),
            ComparedFigure(f"{name}: {_POOLED}", ours[method]["pooled"], tau),
            ComparedFigure(f"{name}: speedup, mean of prompts", ours[method]["speedup"], speedup),
        ]
    # The records are others than those of the pages.
    beside = [
        ComparedFigure(
            f"{source}: DFlash, {measure}",
            ours["dflash"][measure],
            Quoted(value, source, "", measure),
            same_records=False,
        )
        for source, measure, value in ELSEWHERE
    ]
    return Findings(
        compared,
        [f"Printed elsewhere of the same models and dataset, beside these records:\n{compared_text(beside)}"],
        {
            "prompts": ours["dflash"]["macro"].prompts,
            "ar_tokens_per_s": round(prompt_ratio(prompts[_PLAIN], tokens_per_s=1, one=-1).value, 3),
            "macro_over_pooled": {
                name: round(ours[method]["macro"].value / sums[method], 5) for method, name in methods.items()
            },
            "elsewhere": [_elsewhere_row(cell) for cell in beside],
        },
    )


def _prompts(files: ReleasedFiles) -> dict[str, pl.DataFrame]:
    """The prompts of each method: dataset, prompt, mean (of its rounds), tokens_per_s, one."""
    turns = program_turns(files, MODEL, TEMPERATURE, REFERENCE_PROGRAM, datasets=(DATASET,))
    turns = turns.select("method", "dataset", "prompt", "mean", "tokens_per_s", "one").sort("prompt")
    return {name: turns.filter(pl.col("method") == name) for name in METHODS}


def _elsewhere_row(figure: ComparedFigure) -> Row:
    assert figure.theirs is not None
    return {
        "source": figure.theirs.path,
        "method": "DFlash",
        "measure": figure.theirs.where,
        "theirs": figure.theirs.value,
        "here": round(figure.ours.value, 5),
        "here_ci_low": finite(round(figure.ours.interval.low, 5)),
        "here_ci_high": finite(round(figure.ours.interval.high, 5)),
        "within_interval": figure.is_within,
    }
