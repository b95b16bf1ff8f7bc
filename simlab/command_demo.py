"""``simlab demo``: the whole story in a few minutes, from a recorded trace to a measured winner."""

import argparse
import sys
from pathlib import Path

from simlab.command_line import Parser, add_command
from simlab.command_replay import asked_for
from simlab.command_replay_run import replay_trace
from simlab.command_replay_text import heading, table_text
from simlab.errors import SimlabError

POLICIES = ("ar", "chain", "ddtree:budget=16/64")
TARGET, DRAFT = "smollm2-135m", "dflash-smollm2-135m"

_DETAILS = """Replays the trace that comes with simlab; then, with a small target (fetched once, 98 MB), measures
what rounds cost on this machine, records eight dev prompts, picks the policy that is predicted to be
fastest on them, and runs it on eight fresh prompts: is it as fast as predicted, and is the text the
target's own? Progress goes to stderr; the report, verdict first, to stdout."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(
        commands, "demo", "Record, profile, replay, choose and confirm, from beginning to end.", _DETAILS
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="where all files go; finished parts that are there are used again (default runs/demo)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab import command_demo_live
    from simlab.traces.reader import packaged_trace

    says("1/6  The trace that comes with simlab is replayed, without any model")
    sample = options.out / "sample.parquet"
    parts = [("The trace that comes with simlab, replayed without any model", _replayed(packaged_trace(), sample))]
    try:
        story = command_demo_live.live_story(options.out, TARGET, DRAFT)
    except SimlabError as error:
        parts.append(("What was left out", f"Everything that runs models: {error}"))
        return _report(parts, [sample], failed=False)
    return _report([*story.first, *parts, *story.others], [sample, *story.files], story.has_failed)


def says(line: str) -> None:
    """What happens now, for the person who waits."""
    print(line, file=sys.stderr, flush=True)


def _report(parts: list[tuple[str, str]], files: list[Path], failed: bool) -> int:
    for title, text in parts:
        print(f"\n{title}\n{'-' * len(title)}\n\n{text}")
    print("\nFiles: " + ", ".join(map(str, files)))
    print("Look into them with `simlab inspect PATH`; replay others with `simlab replay --trace DIR -p ...`.")
    return 1 if failed else 0


def _replayed(folder: Path, out: Path) -> str:
    """Replay a trace under the demo's policies and keep the rows; the table."""
    from simlab.traces.reader import open_trace
    from simlab.traces.results import write_results

    trace = open_trace(folder)
    draft = trace.draft_name()
    asked = asked_for(POLICIES, (), trace, draft)
    rows = replay_trace(trace, draft, asked, None)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_results(out, rows)
    return f"{heading(trace, draft, rows, asked[0].prices)}\n\n{table_text(rows, asked[0].prices)}"
