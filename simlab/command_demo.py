"""``simlab demo``: the whole story on the packaged trace and on four fresh prompts."""

import argparse
from collections.abc import Callable
from pathlib import Path

from simlab.command_line import Parser, add_command, needing_models
from simlab.command_replay import heading, replay_trace, table_text, with_references
from simlab.errors import SimlabError

POLICIES = ("ar", "chain", "ddtree:budget=16/64")
PROMPTS = Path(__file__).parent / "data" / "demo_prompts.jsonl"
MAX_NEW_TOKENS = 128

_DETAILS = """Replays the trace that comes with simlab, then fetches a small target (98 MB, once), records four
fresh prompts with it, shows one round as text, and replays the recording."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "demo", "Record four prompts and replay them, from beginning to end.", _DETAILS)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="where the recording goes (default runs/demo)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.traces.reader import packaged_trace

    _say("1. The trace that comes with simlab, replayed without any model")
    files = [_replay(packaged_trace(), options.out / "sample.parquet")]
    _say("2. Four fresh prompts, recorded with a real target and a real drafter")
    try:
        folder = _record(options.out / "trace")
    except SimlabError as error:
        print(f"This part was left out: {error}")
        _list(files)
        return 0
    _say("3. One round of that recording")
    _show_round(folder)
    _say("4. The recording, replayed")
    files += [folder, _replay(folder, options.out / "fresh.parquet")]
    _list(files)
    return 0


def _say(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}\n", flush=True)


def _list(files: list[Path]) -> None:
    print("\nFiles: " + ", ".join(map(str, files)))
    print("Look into them with `simlab inspect PATH`; replay others with `simlab replay --trace DIR -p ...`.")


def _replay(folder: Path, out: Path) -> Path:
    """Replay a trace under the demo's policies, print the table, and keep the rows."""
    from simlab.traces.reader import open_trace
    from simlab.traces.results import write_results

    trace = open_trace(folder)
    draft = trace.draft_name()
    rows = replay_trace(trace, draft, with_references(POLICIES), limit=None, progress=None)
    print(f"{heading(trace, draft, rows)}\n\n{table_text(rows)}", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_results(out, rows)
    return out


def _record(folder: Path) -> Path:
    """Record the demo's prompts; a recording that is already there is used again.

    Raises:
        SimlabError: torch is missing, or the weights cannot be had.
    """
    if (folder / "manifest.json").is_file():
        print(f"{folder} is there already and is used again; delete it to record anew.")
        return folder
    with needing_models("demo"):
        from simlab.real_runner import builtin, dflash_files, record
        from simlab.real_runner.options import RecordOptions
    options = RecordOptions(
        target=builtin.NAME,
        draft=dflash_files.PACKAGED,
        prompts=PROMPTS,
        out=folder,
        max_new_tokens=MAX_NEW_TOKENS,
        resume=folder.exists(),
    )
    return record.record(options)


def _show_round(folder: Path) -> None:
    from simlab.command_demo_round import most_telling_round, round_text
    from simlab.traces.reader import open_trace

    trace = open_trace(folder)
    found = most_telling_round(trace.recorded(trace.draft_name()))
    if found is None:
        print("In this recording the tree never accepted more than the chain, so there is no round to show.")
        return
    print(round_text(*found, decode=_decoder()), flush=True)


def _decoder() -> Callable[[list[int]], str]:
    with needing_models("demo"):
        from simlab.real_runner import builtin, token_text
    return token_text.load_decoder(builtin.NAME)
