"""One HTML file of results, for reading in a meeting."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simlab.analysis.crosscheck.summary import read_crosscheck
from simlab.errors import UsageError
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


def report(
    results: Sequence[str | Path] = (),
    *,
    trace: TraceSource | None = None,
    cost: str | Path | None = None,
    optimum: str | Path | None = None,
    crosschecks: Sequence[str | Path] = (),
    policies: Sequence[str] = (),
    draft: str | None = None,
    limit: int | None = None,
    texts: int = 6,
    title: str = "simlab report",
    command: str = "simlab.report(...)",
) -> Report:
    """Make one HTML file: the verdict, the table, speed by tree size, the trees, and how far to trust it.

    Args:
        results: result files of ``simlab replay --out``, or folders of ``simlab confirm``; none: a trace is replayed.
        trace: a trace, or where one is; None: one at hand whose texts the results are of, or the sample.
        cost: the cost file of the rows.
        optimum: what ``simlab optimize --out`` wrote: the verdict is then about the policy chosen there.
        crosschecks: what ``simlab crosscheck --out`` wrote.
        policies: without results, what to replay; none: a usual set.
        draft: the draft set; None: the only one.
        limit: without results, the first so many prompts only.
        texts: texts whose trees are shown.
        title: of the browser's tab.
        command: what makes the report again, for its footer.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    if results and (policies or limit is not None):
        raise UsageError("-p and --limit are for a report that replays a trace; RESULTS hold what they hold")
    chosen = None if optimum is None else read_optimum(optimum)
    path = None if cost is None else Path(cost)
    if results:
        inputs = inputs_of_results([Path(one) for one in results], trace, draft, path)
    else:
        inputs = inputs_of_replay(opened(trace), draft, path, policies, limit)
    asked = tuple(read_crosscheck(Path(one)) for one in crosschecks)
    for one in asked:
        if one.text_id not in set(inputs.rows["text_id"]):
            raise UsageError(
                f"the crosscheck in {one.place} is of the texts {one.text_id}, and the report of others; give one "
                "of the same trace"
            )
    page = built_page(replace(inputs, optimum=chosen, crosschecks=asked), title, texts, command)
    return Report(page.html, page.verdict, page.missing)
