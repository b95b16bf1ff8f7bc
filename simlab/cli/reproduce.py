"""``simlab reproduce``: a published figure, theirs, ours, and what would have to be equal."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from simlab.cli.options import add_cost, add_progress
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError

if TYPE_CHECKING:
    from simlab.analysis.reproduce.published import PublishedStudy

_DETAILS = """Without a name it lists what is known and whether it can be run here.

  ddtreepp-rounds  4,392 GPU rounds that others released, through the statistics of this project
  averaging        the pooled mean and the mean per response, on the packaged trace and each --trace
  zlab-166         a printed acceptance length; needs a trace of its models
  ddtree-gsm8k     a tree's gain over the chain, its budget chosen on dev prompts; needs two traces and prices

With a trace, each thing that must be equal is held against its manifest and what differs is named; the figures stand
beside it all the same. docs/reproducing.md says more.

  simlab reproduce
  simlab reproduce ddtreepp-rounds
  simlab reproduce averaging --trace runs/mine --trace runs/other
  simlab reproduce zlab-166 --trace runs/zlab-166"""

_USES = {
    "ddtreepp-rounds": (),
    "averaging": ("trace", "draft", "policy", "limit", "progress"),
    "zlab-166": ("trace", "draft", "limit", "progress"),
    "ddtree-gsm8k": ("trace", "dev_trace", "draft", "cost", "limit", "progress"),
}
"""The options that each name reads."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "reproduce", "A published figure: theirs, ours, the difference.", _DETAILS)
    parser.add_argument("name", metavar="NAME", nargs="?", help="one of the list; without it, the list")
    parser.add_argument("--list", action="store_true", help="the list")
    parser.add_argument(
        "--trace", metavar="DIR", action="append", help="a recorded trace; may be repeated for averaging"
    )
    parser.add_argument("--dev-trace", metavar="DIR", help="a trace of other prompts, on which the budget is chosen")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where a trace holds more than one")
    add_cost(parser)
    parser.add_argument("-p", "--policy", action="append", metavar="POLICY", help="of averaging; may be repeated")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts of each trace only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_progress(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.analysis.reproduce.published import PUBLISHED

    if options.name is None or options.list:
        if options.name is not None:
            raise UsageError("--list shows all; leave out the name, or leave out --list")
        _check_options(options, ())
        return _listed(options)
    if options.name not in PUBLISHED:
        raise UsageError(f"there is no published figure {options.name!r}; there are {', '.join(PUBLISHED)}")
    _check_options(options, _USES[options.name])
    one = PUBLISHED[options.name]
    text, values = _REPRODUCTIONS[options.name](options, one)
    if options.json:
        head = {"name": one.name, "title": one.title, "source": one.source}
        print(json.dumps({**head, **values}, indent=1, allow_nan=False))
    else:
        print(text)
    return 0


def _check_options(options: argparse.Namespace, used: tuple[str, ...]) -> None:
    name = options.name or "the list"
    for option in ("trace", "dev_trace", "draft", "cost", "policy", "limit", "progress"):
        if getattr(options, option) is not None and option not in used:
            raise UsageError(f"--{option.replace('_', '-')} says nothing to {name}; leave it out")
    if len(options.trace or ()) > 1 and options.name != "averaging":
        raise UsageError(f"{name} takes one --trace; got {len(options.trace)}")


def _listed(options: argparse.Namespace) -> int:
    from simlab.analysis.reproduce.published import PUBLISHED
    from simlab.analysis.reproduce.text import availability_text, studies_text

    if options.json:
        rows = [
            {
                "name": one.name,
                "state": availability_text(one),
                "title": one.title,
                "source": one.source,
                "missing": one.missing,
            }
            for one in PUBLISHED.values()
        ]
        print(json.dumps({"rows": rows}, indent=1))
    else:
        print(studies_text())
    return 0


def _released(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    from simlab.analysis.reproduce.released_rounds import read_released, released_rounds
    from simlab.analysis.reproduce.text import released_text, study_heading

    found = released_rounds(read_released())
    values = {
        "theirs": [asdict(figure) for figure in one.figures],
        "rounds": found.rounds,
        **found.means.row(),
        **found.tokens_per_s.row("tokens_per_s"),
        **found.whole_block.row("whole_block_share"),
        **found.least_accepted_per_verified.row("least_accepted_per_verified"),
        "rows": [{"rounds": rounds, **means.row()} for rounds, means in found.profiles],
        "comparisons": [each.row() for each in found.against_profile],
    }
    return f"{study_heading(one)}\n\n{released_text(found)}", values


def _averaging(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    from simlab.studies.reproduce import averaging

    return averaging(options, one)


def _of_trace(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    from simlab.analysis.reproduce.text import missing_text
    from simlab.studies.reproduce import chain_of_trace, trees_of_traces

    needed = options.trace and (one.name == "zlab-166" or options.dev_trace)
    if not needed:
        raise UsageError(missing_text(one))
    return chain_of_trace(options, one) if one.name == "zlab-166" else trees_of_traces(options, one)


_REPRODUCTIONS = {
    "ddtreepp-rounds": _released,
    "averaging": _averaging,
    "zlab-166": _of_trace,
    "ddtree-gsm8k": _of_trace,
}
