"""Qwen3-8B with DFlash and its trees on GSM8K, measured by another group: which of the published figures are near it.

The records are of the released code of CaDDTree (arXiv 2606.01813) on 50 questions. A prompt has a mean and a speed;
rounds are released summed over all prompts only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.summaries import Scalar
from simlab.analysis.table.text import aligned, ends, is_known
from simlab.errors import SimlabError
from simlab.untrusted.json_text import parse_json

PROMPTS = "results/raw/8b/baseline_ddtree_caddtree/gsm8k_T0.0.jsonl"
SUMS = "results/raw/8b/collect_8b_2048_20260704/baseline_official/gsm8k_T0.0.pt.summary.json"
CELLS = "results/tables_gpunative/table1_cells_8b.csv"

METHODS: Mapping[str, str] = {"dflash": "DFlash", "ddtree_tb16": "DDTree@16", "caddtree": "CaDDTree"}
"""Names in the records and in their table."""

_SAME = 5e-9
"""Means that differ by less are equal: sums are added in another order."""


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
        row = {"temp": "0.0", "dataset": "gsm8k", "method": name}
        tau, ratio = (files.quoted_cell(CELLS, column, **row) for column in ("tau", "speedup"))
        compared += [
            ComparedFigure(f"{name}: macro average (per response)", macro[method].value, tau, macro[method].interval),
            ComparedFigure(f"{name}: pooled", pooled[method].value, tau),
            ComparedFigure(f"{name}: speedup, mean of prompts", speed[method].value, ratio, speed[method].interval),
        ]
    rows = [_beside(one, {"macro": macro, "speedup": speed}, pooled) for one in elsewhere]
    return Findings(
        compared=tuple(compared),
        follows=_follows(compared, rows),
        tables=(_elsewhere_text(rows),) if rows else (),
        values={"prompts": macro["dflash"].prompts, "elsewhere": [one.row() for one in rows]},
    )


def _prompts(files: ReleasedFiles) -> dict[str, pl.DataFrame]:
    """The prompts of each method: dataset, prompt, mean (of its rounds), tokens_per_s, one."""
    listed = [
        (str(one.get("method")), one.get("sample_idx"), one.get("mean_accept"), one.get("tps"))
        for one in files.objects(PROMPTS)
    ]
    schema = {"method": pl.String, "prompt": pl.Int64, "mean": pl.Float64, "tokens_per_s": pl.Float64}
    table = pl.DataFrame(listed, schema=schema, orient="row", strict=False)
    if any(table.null_count().row(0)):
        raise SimlabError(f"{PROMPTS} has a row without sample_idx, mean_accept or tps; expected all of them")
    table = table.with_columns(pl.lit("gsm8k").alias("dataset"), pl.lit(1.0).alias("one")).sort("prompt")
    found = {str(name): own for (name,), own in table.partition_by("method", as_dict=True).items()}
    asked = found.get("baseline", table.clear())["prompt"].to_list()
    for name in METHODS:
        if name not in found or found[name]["prompt"].to_list() != asked:
            raise SimlabError(
                f"{PROMPTS} has other prompts of {name} than of autoregressive decoding; expected the same"
            )
    return found


def _pooled(files: ReleasedFiles) -> dict[str, Quoted]:
    """The mean over all rounds, as their program summed it."""
    summary = parse_json(files.text(SUMS))
    rows = summary.get("rows") if isinstance(summary, dict) else None
    if not isinstance(rows, list):
        raise SimlabError(f"{SUMS} has no rows; expected one for each method")
    name = "accept_len_round_weighted"
    return {row["method"]: files.quoted(SUMS, float(row[name]), f"{name} of {row['method']}") for row in rows}


def _speedup(own: pl.DataFrame, plain: pl.DataFrame) -> PromptFigure:
    """The mean over prompts of tokens per second, over the same mean of autoregressive decoding, paired."""
    both = own.with_columns(plain["tokens_per_s"].alias("plain"))
    return prompt_ratio(both, tokens_per_s=1, plain=-1)


@dataclass(frozen=True, slots=True)
class _Beside:
    """A figure of another page beside these records'; its interval is unknown where rounds are released as sums."""

    theirs: PublishedElsewhere
    here: float
    interval: Interval

    @property
    def is_within(self) -> bool | None:
        if not is_known(self.interval):
            return None
        return self.interval.low - 0.005 <= self.theirs.value <= self.interval.high + 0.005

    @property
    def described(self) -> str:
        return f"{self.theirs.value:.2f} ({self.theirs.source}, {self.theirs.measure})"

    def row(self) -> dict[str, Scalar]:
        return {
            "source": self.theirs.source,
            "method": METHODS[self.theirs.method],
            "measure": self.theirs.measure,
            "theirs": self.theirs.value,
            "here": round(self.here, 5),
            "here_ci_low": finite(round(self.interval.low, 5)),
            "here_ci_high": finite(round(self.interval.high, 5)),
            "within_interval": self.is_within,
        }


def _beside(
    one: PublishedElsewhere, ours: Mapping[str, Mapping[str, PromptFigure]], pooled: Mapping[str, Quoted]
) -> _Beside:
    if one.measure == "pooled":
        return _Beside(one, pooled[one.method].value, UNKNOWN)
    own = ours[one.measure][one.method]
    return _Beside(one, own.value, own.interval)


def _elsewhere_text(rows: Sequence[_Beside]) -> str:
    cells = [["printed elsewhere, of the same models", "of", "theirs", "in these records", "", "theirs within"]]
    held = {None: "", True: "yes", False: "no"}
    for one in rows:
        measure = f"{METHODS[one.theirs.method]}, {one.theirs.measure}"
        shown = "" if one.is_within is None else ends(one.interval)
        theirs, here = f"{one.theirs.value:.2f}", f"{one.here:.2f}"
        cells.append([one.theirs.source, measure, theirs, here, shown, held[one.is_within]])
    return aligned(cells, [True, True, False, False, True, True])


def _follows(compared: Sequence[ComparedFigure], rows: Sequence[_Beside]) -> str:
    """What the table is a mean of, and what other figures look like beside it."""
    exact = [
        one for one in compared if one.theirs is not None and "pooled" not in one.what and abs(one.difference) < _SAME
    ]
    of_macro = len(exact) == sum("pooled" not in one.what for one in compared)
    first = f"their table {'is' if of_macro else 'is not'} the mean over prompts of these records"
    if not rows:
        return f"{first}."
    near, far = (", ".join(one.described for one in rows if one.is_within is held) for held in (True, False))
    return (
        f"{first}. Of what other pages print of these models and dataset, our interval holds {near or 'nothing'}; it "
        f"leaves out {far or 'nothing'}. Which questions, wording and machines those are of is not known."
    )
