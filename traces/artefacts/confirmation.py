"""The summary that ``simlab confirm`` leaves in its folder, read without any model package."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from simlab.errors import TraceError
from simlab.traces.format.documents import DocumentKind, JsonFields, check_digest, read_document, value_of
from simlab.traces.format.files import MANIFEST

FORMAT = "simlab-confirmation"
FORMAT_VERSION = 1
"""The format of summaries that this simlab writes, and the newest that it reads."""

SUMMARY, RESULTS = "confirm.json", "results.parquet"
"""In the folder of a confirmation: its summary, and its result rows."""

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Scalar]

KIND = DocumentKind(
    FORMAT,
    FORMAT_VERSION,
    "summary of a confirmation",
    "`simlab confirm --out DIR` makes one, and with --resume makes that of a finished folder again",
)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a confirmation found.

    Attributes:
        text_id: of the trace whose prompts were run; the same for ``draft_ids`` by the names of draft sets.
        cost_id: of the prices that were predicted with, which are always of just what was run; None: no prices.
        why_unpriced: where there are none.
        prices: in words.
        verdict: sentences, a line each.
        prediction: a sentence on how good the prediction was; empty without prices.
        heading: what was replayed and run, in lines.
        ran: device, threads, dtype, versions, how many prompts, why it ended and how wide the widest interval was.
        chosen: what was chosen beforehand and on which prompts; None: nothing was.
        first: label of the policy that the verdict is about; None: no policy has both a speed and the target's text.
        comparisons: of that policy with each of the others, as `simlab compare` has them.
        rank_agreement: counts, Kendall's tau and the pairs that disagree.
        rows: a row per policy: predicted and measured figures, errors, what was judged of its texts.
        by: by what the slices are cut; None: not.
        slices: a row per slice and policy.
        differences: between run and trace.
    """

    simlab_version: str
    text_id: str
    draft_ids: Mapping[str, str]
    cost_id: str | None
    why_unpriced: str
    prices: str
    verdict: str
    prediction: str
    heading: str
    ran: Mapping[str, object]
    chosen: Mapping[str, object] | None
    first: str | None
    comparisons: tuple[Row, ...]
    rank_agreement: Mapping[str, object]
    rows: tuple[Row, ...]
    by: str | None
    slices: tuple[Row, ...]
    differences: tuple[Row, ...]

    def row(self, policy: str) -> Row:
        """The row of a policy, by its label."""
        return {str(row["policy"]): row for row in self.rows}[policy]


def read_confirmation(location: str | Path) -> Confirmation:
    """The summary in the folder of a confirmation, or of that file itself.

    Raises:
        TraceError: there is none, it is of something else, of an older or newer simlab, or damaged.
    """
    path = Path(location) / SUMMARY if Path(location).is_dir() else Path(location)
    fields = read_document(path, KIND)
    prices = fields.inner("prices")
    summary = value_of(
        Confirmation,
        fields,
        cost_id=_text_or_none(prices, "cost_id"),
        why_unpriced=prices.text("why_none"),
        prices=prices.text("heading"),
        **{key: _rows(fields, key) for key in ("comparisons", "rows", "slices", "differences")},
    )
    check_digest(fields)
    return summary


def is_confirmation(location: str | Path) -> bool:
    """Whether a folder is what ``simlab confirm`` wrote; a trace beside whose files it was written is a trace."""
    return (Path(location) / SUMMARY).is_file() and not (Path(location) / MANIFEST).exists()


def results_of(location: str | Path) -> Path:
    """The result file in the folder of a confirmation; any other path as it is, taken for that of a result file."""
    return Path(location) / RESULTS if is_confirmation(location) else Path(location)


def _text_or_none(fields: JsonFields, key: str) -> str | None:
    return None if fields.values.get(key, "") is None else fields.text(key)


def _rows(fields: JsonFields, key: str) -> tuple[Row, ...]:
    return tuple({name: _scalar(row, name, value) for name, value in row.values.items()} for row in fields.objects(key))


def _scalar(fields: JsonFields, key: str, value: object) -> Scalar:
    if value is None or isinstance(value, str | int | float):
        return value
    raise TraceError(f"{fields.where}: {key!r} must be a number, a string or null; got {value!r}. Copy the file again.")
