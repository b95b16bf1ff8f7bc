"""One HTML file of results, for reading in a meeting."""

import base64
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar

from simlab.analysis.crosscheck.summary import read_crosscheck
from simlab.errors import UsageError
from simlab.options import (
    cost_option,
    count,
    draft_set_option,
    limit_option,
    option,
    path_or_none,
    paths,
    policies_option,
    study,
    trace_option,
)
from simlab.policy import GivenPolicies
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.studies.report.build import built_page
from simlab.studies.report.inputs import inputs_of_replay, inputs_of_results
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.format.files import write_beside


@dataclass(frozen=True, slots=True)
class Report:
    """A report: one file that needs nothing else, no network and no server.

    Attributes:
        html: the file.
        verdict: its first sentence.
        missing: what is not in it, and why, and what must be known of the rest, a sentence each.
    """

    html: str
    verdict: str
    missing: tuple[str, ...]

    def write(self, path: str | Path) -> int:
        """Write the file, beside it first and then in its place; its size in bytes."""
        content = self.html.encode()
        write_beside(Path(path), lambda file: file.write(content))
        return len(content)

    def _repr_html_(self) -> str:
        # In a frame of its own: the page has its own style and scripts.
        page = base64.b64encode(self.html.encode()).decode()
        return f'<iframe src="data:text/html;base64,{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


@dataclass(frozen=True)
class ReportOptions:
    """What a report is made of."""

    DETAILS: ClassVar = """\
The file needs nothing else, no network and no server: the verdict in a sentence, the table, speed
against tree size, four labels that say how far to trust it, and below that acceptance by depth, where rounds end,
early-stopping rules, latencies, and the trees that policies chose, text by text.
RESULTS are files of `simlab replay --out`, or folders of `simlab confirm`, in any number: predicted
and measured rows of the same texts. Without RESULTS the trace is replayed, under -p or a usual set,
of which what the trace or its models lack is left out; without --trace it takes the small packaged
trace. Sections about single rounds need the trace: the one named, the one in a folder of confirm,
or the packaged one.
--optimum FILE is what `simlab optimize --out` wrote: the verdict is then about the policy chosen there.

  simlab report --out report.html
  simlab report runs/confirm --out report.html
  simlab report results.parquet runs/confirm --trace runs/mine --cost runs/cost.json --optimum optimum.json"""

    results: Sequence[str | Path] = option(
        (), "result files, or folders of confirm", "RESULTS", read=Path, repeats=True, positional=True
    )
    _: KW_ONLY
    out: str | Path | None = option(
        None,
        "the file to write (default on the command line: report.html)",
        "FILE",
        read=Path,
        example="report.html",
    )
    trace: TraceSource | None = trace_option()
    draft_set: str | None = draft_set_option()
    cost: str | Path | None = cost_option()
    policies: GivenPolicies = policies_option("without RESULTS: what to replay, see `simlab policies`; may be repeated")
    optimum: str | Path | None = option(None, "what `simlab optimize --out` wrote", "FILE", read=Path)
    crosscheck: Sequence[str | Path] = option(
        (), "what `simlab crosscheck --out` wrote; may be repeated", "DIR", read=Path, repeats=True
    )
    limit: int | None = limit_option("without RESULTS: the first N prompts only")
    texts: int = option(6, "texts whose trees are shown; 0: none", "N", read=count(0))
    title: str = option("simlab report", "of the browser's tab", "TEXT")
    command: str = "simlab.report(...)"
    """What makes the report again, for its footer."""


@study(ReportOptions)
def report(options: ReportOptions) -> Report:
    """Make one HTML file: the verdict, the table, speed by tree size, the trees, and how far to trust it.

    With ``out`` the file is written too.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    if options.results and (options.policies or options.limit is not None):
        raise UsageError("-p and --limit are for a report that replays a trace; RESULTS hold what they hold")
    chosen = None if options.optimum is None else read_optimum(options.optimum)
    path = path_or_none(options.cost)
    if options.results:
        inputs = inputs_of_results(paths(options.results), options.trace, options.draft_set, path)
    else:
        trace = opened(options.trace, [] if path is None else [path])
        inputs = inputs_of_replay(trace, options.draft_set, path, options.policies, options.limit)
    asked = tuple(read_crosscheck(Path(path)) for path in options.crosscheck)
    for summary in asked:
        if summary.text_id not in set(inputs.rows["text_id"]):
            raise UsageError(
                f"the crosscheck in {summary.location} is of the texts {summary.text_id}, and the report of others; "
                "give one of the same trace"
            )
    inputs = replace(inputs, optimum=chosen, crosschecks=asked)
    made = Report(*built_page(inputs, options.title, options.texts, options.command))
    if options.out is not None:
        made.write(options.out)
    return made
