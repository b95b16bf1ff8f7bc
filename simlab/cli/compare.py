"""``simlab compare``: two results, traces, drafters, machines or policies on the same prompts."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError
from simlab.studies.compare import Place, Wanted, open_place, pairs_of

if TYPE_CHECKING:
    from simlab.analysis.compare.comparisons import Comparison
    from simlab.analysis.table.prompt_sums import PolicyRun

_MOST_NAMED = 5
"""Prompts that were left out are named in the text up to so many; all are in the JSON."""

_DETAILS = """A and B are result files of `simlab replay --out` or `simlab confirm`, or traces, which are replayed.
Prompts that only one side has are named and left out. Of several policies each is held against itself.
With A alone its policies are held against each other: the first -p against the rest.
More than one comparison is read as a family: p-values are adjusted.

  simlab compare before.parquet after.parquet
  simlab compare results.parquet -p ddtree:budget=16 --against chain
  simlab compare runs/one runs/other -p ddtree:budget=16/32 --by dataset
  simlab compare runs/one runs/one --cost a.json --cost b.json -p caddtree"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "compare", "Hold two results against each other, on the same prompts.", _DETAILS)
    parser.add_argument("first", metavar="A", help="a result file or a trace")
    parser.add_argument("second", metavar="B", nargs="?", help="another; without it policies of A are compared")
    parser.add_argument("-p", "--policy", action="append", default=[], metavar="POLICY", help="may be repeated")
    parser.add_argument("--against", metavar="POLICY", help="the policy of B (or of A alone) to hold them against")
    parser.add_argument(
        "--measure",
        choices=("tokens_per_s", "speedup", "acceptance_length", "acceptance_length_macro"),
        help="what the verdict is about (default: tokens_per_s where both have seconds, else acceptance_length)",
    )
    parser.add_argument("--by", choices=("dataset", "context", "turn"), help="a comparison for each, and one of all")
    parser.add_argument("--correction", choices=("holm", "bh"), default="holm", help="of a family (default: holm)")
    parser.add_argument("--kind", choices=("predicted", "measured"), help="which rows, where a file holds both")
    parser.add_argument(
        "--cost",
        action="append",
        default=[],
        metavar="COST",
        help="of a trace a cost file, of a result file a cost id; a second one is B's",
    )
    parser.add_argument("--draft", action="append", default=[], metavar="NAME", help="of a trace; a second one is B's")
    parser.add_argument("--limit", type=positive, metavar="N", help="of a trace the first N prompts only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from simlab.analysis.compare.comparisons import compare_runs, headline_measure
    from simlab.analysis.table.prompt_sums import shared_runs

    wanted, same = _wanted(options)
    first, second = (open_place(one) for one in wanted)
    pairs = pairs_of(first, second, same, bool(options.policy), options.against is not None)
    runs, places = _runs(first, second, pairs, same)
    shared, left_out = shared_runs(runs)
    found = compare_runs(shared, places, options.by, options.correction)
    if not found:
        raise UsageError("there is no prompt that both have, with the same turns and samples; nothing can be compared")
    shown = _Shown((first,) if same else (first, second), found, options.measure or headline_measure(found), left_out)
    if shown.measure not in {one.measure for one in found}:
        raise UsageError(f"--measure {shown.measure} needs seconds of both, and there are none")
    print(json.dumps(_json(shown), indent=1, allow_nan=False) if options.json else _text(shown, options))
    return 0


def _wanted(options: argparse.Namespace) -> "tuple[tuple[Wanted, Wanted], bool]":
    """What is asked of each place, and whether it is one place."""
    for name in ("cost", "draft"):
        if len(getattr(options, name)) > 2:
            raise UsageError(f"--{name} may be given twice, for A and for B; got {len(getattr(options, name))}")
    policies = tuple(options.policy)
    rivals = policies if options.against is None else (options.against,)
    first, second = (
        Wanted(place, asked, options.kind, _of_side(options.cost, side), _of_side(options.draft, side), options.limit)
        for side, (place, asked) in enumerate(((options.first, policies), (options.second or options.first, rivals)))
    )
    same = options.second is None and len(options.cost) < 2 and len(options.draft) < 2
    return (first, second), same


def _of_side(values: Sequence[str], side: int) -> str | None:
    return values[min(side, len(values) - 1)] if values else None


def _runs(
    first: Place, second: Place, pairs: Sequence[tuple[str, str]], same: bool
) -> "tuple[list[PolicyRun], list[tuple[int, int]]]":
    """Each policy at each place once, and the pairs by their places in the list."""
    from simlab.analysis.table.prompt_sums import PolicyRun

    runs: dict[str, PolicyRun] = {}
    for labels in pairs:
        for letter, place, label in zip("AB", (first, second), labels, strict=True):
            name = _name(letter, label, same)
            runs.setdefault(name, PolicyRun(name, place.of(label), place.plain()))
    order = list(runs)
    places = [(order.index(_name("A", one, same)), order.index(_name("B", other, same))) for one, other in pairs]
    return list(runs.values()), places


def _name(letter: str, label: str, same: bool) -> str:
    return label if same else f"{label} ({letter})"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is printed.

    Attributes:
        measure: what the verdict is about.
        left_out: prompts of each run that another has not.
    """

    places: tuple[Place, ...]
    found: "Sequence[Comparison]"
    measure: str
    left_out: "Mapping[str, Sequence[tuple[str, str]]]"


def _json(shown: _Shown) -> dict[str, object]:
    from simlab.analysis.compare.verdicts import verdict_sentence

    of_measure = [one for one in shown.found if one.measure == shown.measure]
    return {
        **{letter: place.heading for letter, place in zip("AB", shown.places, strict=False)},
        "measure": shown.measure,
        "verdicts": [verdict_sentence(one) for one in of_measure],
        "left_out": {name: [list(prompt) for prompt in prompts] for name, prompts in shown.left_out.items() if prompts},
        "rows": [one.row() for one in shown.found],
    }


def _text(shown: _Shown, options: argparse.Namespace) -> str:
    from simlab.analysis.compare.text import comparison_notes, comparison_table, verdicts_text

    of_measure = [one for one in shown.found if one.measure == shown.measure]
    rows = of_measure if len(of_measure) > 1 else shown.found
    heading = [f"{letter}  {place.heading}" for letter, place in zip("AB", shown.places, strict=False)]
    texts = [set(place.rows["text_id"]) for place in shown.places]
    if texts[0] != texts[-1]:
        heading.append("A and B have different texts on the same prompts.")
    heading += [_left_out_text(name, prompts) for name, prompts in shown.left_out.items() if prompts]
    parts = [
        "\n".join(heading),
        verdicts_text(of_measure, options.by),
        comparison_table(rows, options.by),
        comparison_notes(rows, options.correction),
    ]
    return "\n\n".join(parts)


def _left_out_text(name: str, prompts: Sequence[tuple[str, str]]) -> str:
    listed = ", ".join("/".join(one) for one in prompts[:_MOST_NAMED])
    more = f" and {len(prompts) - _MOST_NAMED} more (all with --json)" if len(prompts) > _MOST_NAMED else ""
    return f"Left out, not in all with the same turns and samples: {len(prompts)} of {name}: {listed}{more}."
