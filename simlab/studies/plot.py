"""``simlab plot``: one picture of a result file; and which pictures each result of a study has, for its ``plot()``.

Each picture is drawn by the function that draws it in the report.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simlab.analysis.figure_style import Figure, picture_bytes, picture_format
from simlab.analysis.report.costs import budget_chart, example_chart, maxima_chart, regret_chart
from simlab.analysis.report.page import Chart
from simlab.analysis.report.pairs import advice_chart, agreement_chart, difference_chart
from simlab.analysis.report.results import scoring_parts, split_rows
from simlab.analysis.report.speed import speed_chart
from simlab.analysis.scoring.score import without_budget
from simlab.errors import UsageError
from simlab.options import (
    cost_option,
    draft_set_option,
    option,
    out_option,
    path_or_none,
    paths,
    policies_option,
    study,
    trace_option,
)
from simlab.policy import GivenPolicies, GivenPolicy
from simlab.studies.compare import CompareOptions, ComparisonTable, compare
from simlab.studies.inputs.trace import TraceSource
from simlab.studies.report.build import CHARTS, chart_of
from simlab.studies.report.inputs import inputs_of_results, inputs_of_rows
from simlab.studies.result import Pictures
from simlab.traces.format.files import write_beside
from simlab.untrusted.visible import ShownText

if TYPE_CHECKING:
    # Results come with their classes; those of models take seconds to load.
    from simlab.studies.confirm.confirmation import Confirmation
    from simlab.studies.curves import CurveTable
    from simlab.studies.engines.advise import Advice
    from simlab.studies.optimize.optimize import OptimizeResult
    from simlab.studies.replay.replay import ReplayTable
    from simlab.studies.scoring import ScoringTable

_FROM_ROWS = ("speed", "by-dataset", "by-context", "by-turn", "stages", "depths", "ends")
"""The pictures of a replay: what needs rows, or the rounds of its policies."""

DIFFERENCES = "differences"


def replay_pictures(table: "ReplayTable") -> Pictures:
    """The report's figures of rows and rounds, by the first latency profile."""
    machine = table.machines[0]

    def drawn(key: str) -> Chart:
        return chart_of(inputs_of_rows(table.rows, machine, table.trace, table.draft), key)

    return {key: partial(drawn, key) for key in _FROM_ROWS}


def comparison_pictures(table: ComparisonTable) -> Pictures:
    """The comparisons of the measure that the verdict is about."""
    return {DIFFERENCES: lambda: difference_chart(table.of_measure)}


def advice_pictures(advice: "Advice") -> Pictures:
    """Chain and tree by batch size."""
    return {"advice": lambda: advice_chart(advice.batches)}


def optimize_pictures(optimized: "OptimizeResult") -> Pictures:
    """The choice against its rivals, and the finalists on the evaluation prompts."""
    cost_id = optimized.inputs.evaluation.prices[0].cost_id
    comparisons = optimized.standing.comparisons
    differences: Pictures = {DIFFERENCES: lambda: difference_chart(comparisons)} if comparisons else {}
    return {**differences, "speed": lambda: speed_chart(split_rows(optimized.results, cost_id))}


def curve_pictures(table: "CurveTable") -> Pictures:
    """Fixed budgets, maxima, what rules lose, and the worst root."""
    several = len({setting.cost_id for setting in table.settings}) > 1
    names = [
        f"{setting.edges} probabilities" + (f", {setting.cost_id}" if several else "") for setting in table.settings
    ]
    return {
        "budgets": lambda: budget_chart(table.settings, names),
        "maxima": lambda: maxima_chart(table.summaries, names),
        "regret": lambda: regret_chart(table.summaries, names),
        "worst": lambda: example_chart(table.worst(table.settings[0])),
    }


def scoring_pictures(table: "ScoringTable") -> Pictures:
    """Calibration, first candidates, and what drafted tokens are spent on."""
    scored = dict(table.parts)[None]
    labels = {without_budget(policy.label): policy.label for policy in table.inputs.policies}

    def drawn(key: str) -> Chart:
        parts = scoring_parts(scored, list(labels.values()))
        return next(part for part in parts if isinstance(part, Chart) and part.key == key)

    return {key: partial(drawn, key) for key in ("reliability", "first-candidates", "gap", "waste")}


def confirmation_pictures(confirmation: "Confirmation") -> Pictures:
    """Predicted beside measured speedups."""
    return {"agreement": lambda: agreement_chart(confirmation.policies)}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Picture(ShownText):
    """One picture of results.

    Attributes:
        figure: a plotly figure.
        title: what it shows.
        caption: how to read it, and over what.
    """

    figure: Figure
    title: str
    caption: str

    def text(self) -> str:
        """Title and caption, as ``simlab plot`` prints them."""
        return f"{self.title}\n{self.caption}"

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab plot --json`` prints."""
        return {"title": self.title, "caption": self.caption}

    def write(self, path: str | Path) -> None:
        """Write it as the end of the name says: .svg, .pdf, .png or .html.

        Raises:
            SimlabError: no such format, or what draws it is not installed.
        """
        content = picture_bytes(self.figure, picture_format(Path(path)), Path(path).stem)
        write_beside(Path(path), lambda file: file.write(content))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> object:
        return self.figure._repr_mimebundle_(include, exclude)


@dataclass(frozen=True)
class PlotOptions:
    """Which picture is drawn of which results, and where it goes."""

    DETAILS: ClassVar = """\
RESULTS are files of `simlab replay --out`, or folders of `simlab confirm`, as for `simlab report`, which draws the
same pictures. The end of the name of --out says the format: .svg, .pdf and .png need the package kaleido and a Chrome
or Chromium; .html needs nothing else.
speed is the speedup, or without latencies the acceptance length, by the size of the tree; depths the acceptance by
depth; differences what `simlab compare` says: each policy against --against, paired over prompts. depths, ends and
what follows them in the list need the trace, and from maxima on the cost file: as for the report, those that come
with simlab are found.

  simlab plot results.parquet --out speed.svg
  simlab plot results.parquet --show depths --out depths.pdf
  simlab plot results.parquet --show differences --against chain --out differences.html"""

    results: Sequence[str | Path] = option(
        ..., "result files, or folders of confirm", "RESULTS", read=Path, repeats=True, positional=True
    )
    _: KW_ONLY
    show: str = option(
        "speed", f"which picture: {', '.join((*CHARTS, DIFFERENCES))}", "PICTURE", choices=(*CHARTS, DIFFERENCES)
    )
    out: str | Path | None = out_option("the file to write: .svg, .pdf, .png or .html", "Picture", "speed.svg")
    policies: GivenPolicies = policies_option("differences: these alone (default: all); may be repeated")
    against: GivenPolicy | None = option(
        None, "differences: the policy that others are compared with (default: chain)", "POLICY"
    )
    trace: TraceSource | None = trace_option("the trace of the results (default: the packaged one, or that of confirm)")
    draft_set: str | None = draft_set_option()
    cost: str | Path | None = cost_option()


@study(PlotOptions)
def plot(options: PlotOptions) -> Picture:
    """Draw one picture of results, as the report draws it.

    Raises:
        SimlabError: the results do not have the picture, or what draws it is not installed.
    """
    out = path_or_none(options.out)
    if out is not None:
        picture_format(out)
    files = paths(options.results)
    if options.show == DIFFERENCES:
        chart = _differences(files, options)
    else:
        if options.policies or options.against is not None:
            raise UsageError(f"-p and --against are for --show {DIFFERENCES}; other pictures are of all policies")
        inputs = inputs_of_results(files, options.trace, options.draft_set, path_or_none(options.cost))
        chart = chart_of(inputs, options.show)
    picture = Picture(chart.on_white(), chart.title, chart.caption)
    if out is not None:
        picture.write(out)
    return picture


def _differences(files: Sequence[Path], options: PlotOptions) -> Chart:
    if len(files) != 1:
        raise UsageError(f"--show {DIFFERENCES} is of one result file; got {len(files)}; put them together with merge")
    (file,) = files
    against = "chain" if options.against is None else options.against
    cost = () if options.cost is None else (str(options.cost),)
    asked = CompareOptions(file, options.policies, against=against, cost=cost)
    return difference_chart(compare.run(asked).of_measure)
