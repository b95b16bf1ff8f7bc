"""``simlab demo``: the whole story in a few minutes, from a recorded trace to a measured winner."""

import argparse
import contextlib
import io
import shlex
import sys
from pathlib import Path

from simlab.cli import demo_live as command_demo_live
from simlab.cli.main import INTERRUPTED, main
from simlab.cli.parser import Parser
from simlab.errors import SimlabError
from simlab.studies.inputs.priced_policies import priced_policies
from simlab.studies.replay.run import replay_trace
from simlab.studies.replay.text import heading, table_text
from simlab.traces.reader import open_trace, packaged_trace
from simlab.traces.results.rows import write_results

POLICIES = ("ar", "chain", "ddtree:budget=16/64")
TARGET, DRAFT = "smollm2-135m", "dflash-smollm2-135m"

DETAILS = """Replays the trace that comes with simlab; then, with a small target (fetched once, 98 MB), measures
what rounds cost on this machine, records eight dev and eight fresh prompts, searches policies on the dev
prompts, and runs the best on the fresh ones: is it as fast as predicted, and is the text the target's own?
It ends with a report, one HTML file. Progress goes to stderr; what was found, verdict first, to stdout."""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="where all files go; finished parts that are there are used again (default runs/demo)",
    )


def run(options: argparse.Namespace) -> int:

    says("1/7  The trace that comes with simlab is replayed, without any model")
    sample = options.out / "sample.parquet"
    parts = [("The trace that comes with simlab, replayed without any model", _replayed(packaged_trace(), sample))]
    try:
        story = command_demo_live.live_story(options.out, TARGET, DRAFT)
    except SimlabError as error:
        parts.append(("What was left out", f"Everything that runs models: {error}"))
        page = _page(options.out, [str(sample)])
        return _told(parts, [sample], page, failed=False)
    where = [one if one.startswith("--") else str(options.out / one) for one in story.report]
    page = _page(options.out, where)
    return _told([*story.first, *parts, *story.others], [sample, *story.files], page, story.has_failed)


def says(line: str) -> None:
    """What happens now, for the person who waits."""
    print(line, file=sys.stderr, flush=True)


def printed(*arguments: str) -> str:
    """What a command prints.

    Raises:
        SimlabError: it failed; why stands on stderr.
    """
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = main(arguments)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        raise SimlabError(f"`simlab {shlex.join(arguments)}` failed")
    return text.getvalue().strip()


def _page(out: Path, arguments: list[str]) -> Path:
    says("7/7  The report is made")
    path = out / "report.html"
    printed("report", *arguments, "--out", str(path), "--title", "simlab demo")
    return path


def _told(parts: list[tuple[str, str]], files: list[Path], page: Path, failed: bool) -> int:
    for title, text in parts:
        print(f"\n{title}\n{'-' * len(title)}\n\n{text}")
    print("\nFiles: " + ", ".join(map(str, files)))
    print(f"Report: {page}, to be opened in any browser")
    print("Look into them with `simlab inspect PATH`; replay others with `simlab replay --trace DIR -p ...`.")
    return 1 if failed else 0


def _replayed(folder: Path, out: Path) -> str:
    """Replay a trace under the demo's policies and keep the rows; the table."""
    trace = open_trace(folder)
    draft = trace.draft_name()
    asked = priced_policies(POLICIES, (), trace, draft)
    rows = replay_trace(trace, draft, asked, None)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_results(out, rows)
    return f"{heading(trace, draft, rows, asked[0].prices)}\n\n{table_text(rows, asked[0].prices)}"
