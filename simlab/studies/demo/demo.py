"""The demo, from beginning to end, with packaged models or one's own: record, profile, choose, confirm, report."""

import shlex
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar

from simlab.errors import SimlabError, needing_models
from simlab.options import option, path_or_none, study, typed_words
from simlab.real_runner.model_options import (
    DRAFTER,
    TARGET,
    device_option,
    draft_option,
    dtype_option,
    target_option,
    value_or,
)
from simlab.studies.inputs.progress import STEPS, announce
from simlab.studies.replay.replay import replay
from simlab.studies.report.report import ReportOptions, report
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.results.files import write_results

POLICIES = ("ar", "chain", "ddtree:budget=16/64")
"""What is replayed on the trace that comes with simlab."""

_TITLE = "simlab demo"
_MOST_MINUTES = 100_000


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
    """With which models and prompts every step is run, in which time, and where the files go."""

    DETAILS: ClassVar = """\
Without --target, --draft and --prompts it replays the packaged trace; then, with a small target (fetched once, 98 MB),
it does what it does with yours: times a few tokens and chooses sizes that fit into --minutes, records prompts to choose
on and others to report on, measures a latency profile of this machine, searches policies on the first prompts, and runs
the best on the others: is it as fast as predicted, and is the text the target's own? It ends with a report, one HTML
file. Before each step the command that does it stands on stderr, to be repeated by hand; what was found, verdict first,
goes to stdout. Leave the machine alone meanwhile.

  simlab demo
  simlab demo --target Qwen/Qwen3-4B --draft z-lab/Qwen3-4B-DFlash-b16 --prompts prompts.jsonl --device cuda

Prompts are split in two halves by their dataset and id, as `simlab optimize` splits them, or --dev-prompts are the ones
to choose on. What does not fit into the time is left out, and said; where not even the least sizes fit, it says so
before it begins."""

    RESUME: ClassVar = "finished steps are in {out}: the same command goes on"

    out: str | Path = option(
        Path("runs/demo"), "where all files go; finished steps that are there are kept", "DIR", read=Path
    )
    _: KW_ONLY
    target: str | None = target_option()
    draft: str | None = draft_option()
    prompts: str | Path | None = option(
        None, "prompts, JSON lines, as for `simlab record` (default: eight packaged)", "FILE", read=Path
    )
    dev_prompts: str | Path | None = option(
        None, "other prompts, to choose on (default: a half of --prompts, or eight packaged)", "FILE", read=Path
    )
    minutes: float = option(15.0, "of everything, about", "M")
    dtype: str | None = dtype_option("bfloat16 where it is fast", None)
    device: str = device_option()

    def __post_init__(self) -> None:
        if not 0 < self.minutes < _MOST_MINUTES:
            raise ValueError(f"--minutes must be above 0 and below {_MOST_MINUTES:,}; got {self.minutes:g}")
        if self.dev_prompts is not None and self.prompts is None:
            raise ValueError("--dev-prompts are to choose on; name those to report on with --prompts FILE")

    @property
    def is_of_packaged(self) -> bool:
        """Whether nothing of one's own was named."""
        return self.target is None and self.draft is None and self.prompts is None


@study(DemoOptions)
def demo(options: DemoOptions) -> DemoResult:
    """Go from models and prompts to a report: record, profile, choose, confirm; without any, with packaged ones.

    Each step is announced on standard error. Where the packaged models cannot be run, only the packaged trace is
    replayed, and the report made.

    Raises:
        SimlabError: a file cannot be written, or models or prompts that were named cannot be used; what was
        finished stays.
    """
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    first, files = _replayed(folder) if options.is_of_packaged else ((), ())
    target, draft = value_or(options.target, TARGET), value_or(options.draft, DRAFTER)
    try:
        with needing_models("demo"):
            from simlab.studies.demo.live import Live, Models  # noqa: PLC0415 - loads torch
        models = Models(target, draft, options.dtype, options.device)
        given = path_or_none(options.dev_prompts), path_or_none(options.prompts)
        with exclusive_lock(folder / STEPS):
            live = Live(folder, models, given, options.minutes)
            (verdict, *others), has_failed = live.made()
    except SimlabError as error:
        if not options.is_of_packaged:
            raise
        left_out = ("What was left out", f"Everything that runs models: {error}")
        return DemoResult((*first, left_out), files, _offline_report(folder, files[0]))
    made = (*files, live.cost, folder / "dev", folder / "confirm", live.fresh, live.optimum)
    page = _live_report(folder, live.cost, live.fresh, live.optimum)
    return DemoResult((verdict, *first, *others), made, page, has_failed)


def _replayed(folder: Path) -> tuple[tuple[tuple[str, str], ...], tuple[Path, ...]]:
    """What is known without models: title and text, and the file."""
    announce("The packaged trace is replayed, without any model")
    sample = folder / "sample.parquet"
    table = replay(policies=POLICIES)
    write_results(sample, table.rows, table.trace.sequence_counts)
    return (("The packaged trace, replayed without any model", table.text()),), (sample,)


def _offline_report(folder: Path, sample: Path) -> Path:
    """Make the report of the replay alone."""
    return _report(ReportOptions((sample,), out=folder / "report.html", title=_TITLE))


def _live_report(folder: Path, cost: Path, fresh: Path, optimum: Path) -> Path:
    """Make the report of the confirmation and of every budget that was replayed."""
    results = (folder / "confirm", folder / "budgets.parquet")
    out = folder / "report.html"
    return _report(ReportOptions(results, trace=str(fresh), cost=cost, optimum=optimum, out=out, title=_TITLE))


def _report(options: ReportOptions) -> Path:
    """Write the report of these options, with its command in the footer; where it is."""
    command = shlex.join(typed_words("report", options))
    announce("7/7  The report is made")
    announce(f"$ {command}")
    path = Path(str(options.out))
    report.run(replace(options, command=command)).write(path)
    return path
