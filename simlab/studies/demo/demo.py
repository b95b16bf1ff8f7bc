"""The demo, from beginning to end: replay, profile, record, choose, confirm, report."""

import shlex
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.errors import SimlabError, needing_models
from simlab.options import option, path_or_none, study
from simlab.real_runner.model_options import DRAFTER, TARGET, draft_option, target_option, value_or
from simlab.studies.inputs.progress import announce
from simlab.studies.replay.replay import replay
from simlab.studies.report.report import report
from simlab.traces.results.files import write_results

POLICIES = ("ar", "chain", "ddtree:budget=16/64")
"""What is replayed on the trace that comes with simlab."""

_TITLE = "simlab demo"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found.

    Attributes:
        parts: titles and texts; the verdict first, where models could be run.
        files: that were made, the report apart.
        page: the report.
        has_failed: whether a text of the confirmation is not the target's, or rounds are not those of their replay.
    """

    parts: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]
    page: Path
    has_failed: bool = False

    def text(self) -> str:
        """Everything that ``simlab demo`` prints."""
        blocks = [f"\n{title}\n{'-' * len(title)}\n\n{text}" for title, text in self.parts]
        return "\n".join(
            (
                *blocks,
                "\nFiles: " + ", ".join(map(str, self.files)),
                f"Report: {self.page}, to be opened in any browser",
                "Look into them with `simlab inspect PATH`; replay others with `simlab replay --trace DIR -p ...`.",
            )
        )


@dataclass(frozen=True)
class DemoOptions:
    """With which models and prompts every step is run, and where the files go."""

    DETAILS: ClassVar = """\
Replays the packaged trace; then, with a small target (fetched once, 98 MB), measures a latency profile
on this machine, records eight dev and eight fresh prompts, searches policies on the dev
prompts, and runs the best on the fresh ones: is it as fast as predicted, and is the text the target's own?
It ends with a report, one HTML file. Progress goes to stderr; what was found, verdict first, to stdout."""

    RESUME: ClassVar = "finished parts are in {out}: the same command goes on"

    out: str | Path = option(
        Path("runs/demo"), "where all files go; finished parts that are there are used again", "DIR", read=Path
    )
    _: KW_ONLY
    target: str | None = target_option()
    draft: str | None = draft_option()
    prompts: str | Path | None = option(
        None,
        "prompts, JSON lines: every second is chosen on, the others are confirmed on (default: sixteen packaged)",
        "FILE",
        read=Path,
    )


@study(DemoOptions)
def demo(options: DemoOptions) -> DemoResult:
    """Replay the trace that comes with simlab; then profile, record, choose and confirm with small models, and report.

    Each step is announced on standard error. Where models cannot be run, only the first and the last step are done.

    Raises:
        SimlabError: a file cannot be written.
    """
    folder = Path(options.out)
    announce("1/7  The packaged trace is replayed, without any model")
    sample = folder / "sample.parquet"
    table = replay(policies=POLICIES)
    folder.mkdir(parents=True, exist_ok=True)
    write_results(sample, table.rows, table.trace.sequence_counts)
    offline = ("The packaged trace, replayed without any model", table.text())
    target, draft = value_or(options.target, TARGET), value_or(options.draft, DRAFTER)
    try:
        with needing_models("demo"):
            from simlab.studies.demo.live import live_parts  # noqa: PLC0415 - loads torch
        (verdict, *others), files, has_failed = live_parts(folder, target, draft, path_or_none(options.prompts))
    except SimlabError as error:
        left_out = ("What was left out", f"Everything that runs models: {error}")
        return DemoResult((offline, left_out), (sample,), _offline_report(folder, sample))
    return DemoResult((verdict, offline, *others), (sample, *files), _live_report(folder, files), has_failed)


def _offline_report(folder: Path, sample: Path) -> Path:
    """Make the report of the replay alone."""
    announce("7/7  The report is made")
    path = folder / "report.html"
    report([sample], title=_TITLE, command=_command([str(sample)], path)).write(path)
    return path


def _live_report(folder: Path, files: tuple[Path, ...]) -> Path:
    """Make the report of the confirmation and of every budget that was replayed."""
    announce("7/7  The report is made")
    path = folder / "report.html"
    cost, _, fresh, optimum, confirmed = files
    results = (confirmed, optimum.with_name("budgets.parquet"))
    typed = [*map(str, results), "--trace", str(fresh), "--cost", str(cost), "--optimum", str(optimum)]
    page = report(results, trace=fresh, cost=cost, optimum=optimum, title=_TITLE, command=_command(typed, path))
    page.write(path)
    return path


def _command(arguments: list[str], out: Path) -> str:
    """The command that makes a report again, for its footer."""
    return shlex.join(["simlab", "report", *arguments, "--out", str(out), "--title", _TITLE])
