"""Qwen3-8B with DFlash and its trees on GSM8K, measured by another group: which of the published figures are near it.

The records are of the released code of CaDDTree (arXiv 2606.01813) on 50 questions. A prompt has a mean and a speed;
rounds are released summed over all prompts only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings, compared_text
from simlab.analysis.released.domino.records import MODELS, REFERENCE_PROGRAM, ROUNDING, program_turns
from simlab.analysis.released.domino.sessions import program_sums
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio
from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.errors import SimlabError

MODEL = MODELS[1]
DATASET, TEMPERATURE = "gsm8k", "0.0"
PROMPTS = f"{MODEL.raw}/{REFERENCE_PROGRAM}/{DATASET}_T{TEMPERATURE}.jsonl"
SUMS = f"{MODEL.summaries[TEMPERATURE]}/{DATASET}_T{TEMPERATURE}.pt.summary.json"

METHODS: Mapping[str, str] = {"dflash": "DFlash", "ddtree_tb16": "DDTree@16", "caddtree": "CaDDTree"}
"""Names in the records and in their table; DDTree@16 has a budget of 16 nodes."""

_MACRO, _POOLED = "macro average (per response)", "pooled"


@dataclass(frozen=True, slots=True)
class PublishedElsewhere:
    """A figure that another page prints of the same models and questions.

    Attributes:
        source: which page.
        method: in the records.
        measure: ``pooled``, ``macro`` or ``speedup``.
        value: as printed.
    """

    source: str
    method: str
    measure: str
    value: float


def domino_gsm8k(files: ReleasedFiles, elsewhere: tuple[PublishedElsewhere, ...] = ()) -> Findings:
    """Both means and the speedup of each method, beside their table and beside figures of other pages.

    Args:
        files: of the release.
        elsewhere: figures of other pages.

    Raises:
        SimlabError: the files cannot be had, or hold something else.
    """
    prompts, pooled = _prompts(files), _pooled(files)
    macro = {method: prompt_ratio(own, mean=1, one=-1) for method, own in prompts.items()}
    speed = {method: _speedup(own, prompts["baseline"]) for method, own in prompts.items()}
    compared = []
    for method, name in METHODS.items():
        row = {"temp": TEMPERATURE, "dataset": DATASET, "method": name}
        tau, ratio = (files.quoted_cell(MODEL.cells, column, **row) for column in ("tau", "speedup"))
        compared += [
            ComparedFigure(f"{name}: {_MACRO}", macro[method].value, tau, macro[method].interval),
            ComparedFigure(f"{name}: {_POOLED}", pooled[method].value, tau),
            ComparedFigure(f"{name}: speedup, mean of prompts", speed[method].value, ratio, speed[method].interval),
        ]
    beside = [(one, _beside(one, {"macro": macro, "speedup": speed, "pooled": pooled})) for one in elsewhere]
    return Findings(
        compared=tuple(compared),
        follows=_follows(compared, beside),
        tables=(_elsewhere_text([figure for _, figure in beside]),) if beside else (),
        values={
            "prompts": macro["dflash"].prompts,
            "ar_tokens_per_s": round(prompt_ratio(prompts["baseline"], tokens_per_s=1, one=-1).value, 3),
            "macro_over_pooled": {
                name: round(macro[method].value / pooled[method].value, 5) for method, name in METHODS.items()
            },
            "elsewhere": [_elsewhere_row(*one) for one in beside],
        },
    )


def _prompts(files: ReleasedFiles) -> dict[str, pl.DataFrame]:
    """The prompts of each method: dataset, prompt, mean (of its rounds), tokens_per_s, one."""
    table = program_turns(files, MODEL, TEMPERATURE, REFERENCE_PROGRAM, datasets=(DATASET,))
    table = table.select("method", "dataset", "prompt", "mean", "tokens_per_s", "one").sort("prompt")
    if any(table.null_count().row(0)):
        raise SimlabError(f"{PROMPTS} has a row without sample_idx, mean_accept or tps; expected all of them")
    found = {str(name): own for (name,), own in table.partition_by("method", as_dict=True).items()}
    asked = found.get("baseline", table.clear())["prompt"].to_list()
    for name in METHODS:
        if name not in found or found[name]["prompt"].to_list() != asked:
            raise SimlabError(
                f"{PROMPTS} has other prompts of {name} than of autoregressive decoding; expected the same"
            )
    return found


def _pooled(files: ReleasedFiles) -> dict[str, PromptFigure]:
    """The mean over all rounds, as their program summed it; without an interval."""
    sums = program_sums(files, MODEL, TEMPERATURE, datasets=(DATASET,))
    found = {
        row["method"]: PromptFigure(row["committed"] / row["rounds"], UNKNOWN, float("nan"), row["turns"])
        for row in sums.to_dicts()
    }
    missing = [name for name in METHODS if name not in found]
    if missing:
        raise SimlabError(f"{SUMS} has no sums of {', '.join(missing)}")
    return found


def _speedup(own: pl.DataFrame, plain: pl.DataFrame) -> PromptFigure:
    """The mean over prompts of tokens per second, over the same mean of autoregressive decoding, paired."""
    both = own.with_columns(plain["tokens_per_s"].alias("plain"))
    return prompt_ratio(both, tokens_per_s=1, plain=-1)


def _beside(one: PublishedElsewhere, ours: Mapping[str, Mapping[str, PromptFigure]]) -> ComparedFigure:
    """A figure of another page beside these records, which are others than its own."""
    own = ours[one.measure][one.method]
    theirs = Quoted(one.value, one.source, "", one.measure)
    what = f"{one.source}: {METHODS[one.method]}, {one.measure}"
    return ComparedFigure(what, own.value, theirs, own.interval, same_records=False)


def _elsewhere_row(one: PublishedElsewhere, figure: ComparedFigure) -> dict[str, object]:
    return {
        "source": one.source,
        "method": METHODS[one.method],
        "measure": one.measure,
        "theirs": one.value,
        "here": round(figure.ours, 5),
        "here_ci_low": finite(round(figure.interval.low, 5)),
        "here_ci_high": finite(round(figure.interval.high, 5)),
        "within_interval": figure.is_within,
    }


def _elsewhere_text(figures: Sequence[ComparedFigure]) -> str:
    return f"Printed elsewhere of the same models and dataset, beside these records:\n{compared_text(figures)}"


def _follows(compared: Sequence[ComparedFigure], beside: Sequence[tuple[PublishedElsewhere, ComparedFigure]]) -> str:
    """What the table is a mean of, and which other figures are compatible with it."""
    of_table = [one for one in compared if not one.what.endswith(_POOLED)]
    is_mean = all(abs(one.difference) < ROUNDING for one in of_table)
    first = f"their table {'is' if is_mean else 'is not'} the mean over prompts of these records"
    if not beside:
        return f"{first}."
    near, far = (
        ", ".join(
            f"{one.value:.2f} ({one.source}, {one.measure})" for one, figure in beside if figure.is_within is is_in
        )
        for is_in in (True, False)
    )
    told = [f"our interval holds {near}" if near else "", f"it excludes {far}" if far else ""]
    return (
        f"{first}. Of what other pages print of these models and dataset, "
        f"{'; '.join(one for one in told if one) or 'nothing has an interval here'}. Which questions, wording and "
        "machines those are of is not known."
    )
