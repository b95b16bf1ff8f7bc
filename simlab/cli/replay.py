"""``simlab replay``: policies on a recorded trace, and the table of what they did."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.options import add_progress, add_trace, make_room
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import TraceError, UsageError
from simlab.studies.inputs.asked import Asked, asked_for
from simlab.studies.inputs.shelf import in_sample_note
from simlab.studies.replay.batch import batch_note, replay_batches
from simlab.studies.replay.run import Manner, replay_trace
from simlab.studies.replay.text import heading, json_text, tables_text

if TYPE_CHECKING:
    from simlab.traces.reader import Trace
    from simlab.traces.results.rows import Results
    from simlab.traces.results.store import ResultStore

_WITHOUT_CHOICE = ("ddtree:budget=16/64",)

_DETAILS = """Without --trace it takes the small trace that comes with simlab.
Plain decoding (autoregressive), the chain and the hindsight bounds are always in the table;
without -p so are ddtree:budget=16/64.
Speeds are priced with measured seconds: those of --cost FILE, else those that come with simlab
for the trace's models, if there are any. `simlab profile` measures them on this machine.
Policies that weigh tokens against seconds read the same prices, unless they name others: cost=FILE.
With several --cost there is a table for each, and all rows are in one result file. --what-if adds, to each
of them, a machine that nobody measured: "verify*0.5" scales a stage (draft, select, verify, commit, plain), tile=64
lets passes fill whole tiles, batch=8 lets texts share a pass, convex takes the convex view; a comma joins changes.
--batch N replays texts as a server does that decodes N at a time, round after round together; with it
-p joint:budget=B shares B drafted tokens out over the whole batch, and joint-throughput:budget=B chooses by the prices
how many, up to B. Prices of one text become those of N by --what-if's rule, unless a file of
`simlab profile --batch N` is given.

  simlab replay -p ddtree:budget=16/32/64
  simlab replay --trace runs/mine -p chain:length=1..7 --by dataset --out results.parquet
  simlab replay --trace runs/mine -p ddtree:budget=1..512 -p caddtree --cost a.json --cost b.json
    --out results.parquet --resume
  simlab replay -p ddtree:budget=16..256 --what-if "verify*0.5" --what-if verify*0.5,tile=64
  simlab replay --batch 4 -p ddtree:budget=8/16 -p joint:budget=32/64"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "replay", "Replay policies on a recorded trace, exactly.", _DETAILS)
    add_trace(parser)
    parser.add_argument(
        "-p", "--policy", action="append", default=[], metavar="POLICY", help="see `simlab policies`; may be repeated"
    )
    parser.add_argument(
        "--cost",
        type=Path,
        action="append",
        metavar="FILE",
        help="prices: a file of `simlab profile`, or the name of a shipped one; may be repeated",
    )
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGES",
        help='the same prices with something changed, beside them: "verify*0.5,tile=64"; may be repeated',
    )
    parser.add_argument("--batch", type=positive, metavar="N", help="serve N texts at a time; without it each alone")
    parser.add_argument("--by", choices=("dataset", "context", "turn"), help="a table for each, and one of all")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--out", type=Path, metavar="FILE", help="write the result rows, one per policy, sequence and cost file"
    )
    files.add_argument(
        "--resume", action="store_true", help="go on with --out: rows that are there are not made again, others stay"
    )
    files.add_argument(
        "--rounds", type=Path, metavar="FILE", help="write a row for each round of each policy, and why it ended"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.traces.reader import open_trace, packaged_trace
    from simlab.traces.results.rounds import RoundsFile

    _check_files(options)
    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = _draft_name(trace, options.draft)
    asked = asked_for(
        options.policy or _WITHOUT_CHOICE,
        options.cost or [],
        trace,
        draft,
        options.limit,
        options.what_if,
        options.batch,
    )
    if not trace.sequences():
        raise TraceError(f"{trace.place} holds no sequences, so there is nothing to replay")
    store = _store(options)
    rounds = None if options.rounds is None else RoundsFile(options.rounds)
    manner = Manner(options.threads, options.progress, store, rounds)
    try:
        rows = _replayed(trace, draft, asked, options, manner)
    except KeyboardInterrupt:
        if store is not None:
            print(
                f"\nsimlab: interrupted; finished rows are kept: add --resume to go on with {options.out}",
                file=sys.stderr,
            )
        raise
    if store is not None:
        store.finish(rows)
    if rounds is not None:
        rounds.finish()
    _show(options, trace, draft, asked, rows)
    return 0


def _show(options: argparse.Namespace, trace: "Trace", draft: str, asked: Sequence[Asked], rows: "Results") -> None:
    prices = [one.prices for one in asked]
    in_sample = tuple(dict.fromkeys(label for one in asked for label in one.in_sample))
    if options.json:
        print(json_text(trace, draft, rows, options.by, *prices, in_sample=in_sample))
    else:
        print(f"{heading(trace, draft, rows, *prices)}\n\n{tables_text(rows, prices, options.by)}")
        if options.batch is not None:
            print(f"\n{batch_note(options.batch)}")
        if in_sample:
            print(f"\n{in_sample_note(in_sample)}")
        for what, path in (("Result rows", options.out), ("Rows of rounds", options.rounds)):
            if path is not None:
                print(f"{what}: {path}")


def _replayed(
    trace: "Trace", draft: str, asked: Sequence[Asked], options: argparse.Namespace, manner: Manner
) -> "Results":
    if options.batch is None:
        return replay_trace(trace, draft, asked, options.limit, manner)
    return replay_batches(trace, draft, asked, options.limit, options.batch, manner)


def _store(options: argparse.Namespace) -> "ResultStore | None":
    from simlab.traces.results.store import ResultStore

    return None if options.out is None else ResultStore(options.out, options.resume)


def _draft_name(trace: "Trace", name: str | None) -> str:
    names = list(trace.manifest.draft_sets)
    if name is None and len(names) > 1:
        raise UsageError(f"{trace.place} holds the draft sets {', '.join(names)}; choose one with --draft NAME")
    return trace.draft_name(name)


def _check_files(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    if options.resume and options.out is None:
        raise UsageError("--resume goes on with a result file; name it with --out FILE")
    if options.batch is not None and (options.resume or options.rounds is not None):
        raise UsageError("--batch replays all texts together; it takes neither --resume nor --rounds")
    if options.resume and options.rounds is not None:
        raise UsageError("--rounds needs every round replayed, and --resume leaves out those that are done; choose one")
    make_room("--out", options.out, "results.parquet")
    make_room("--rounds", options.rounds, "rounds.parquet")
