"""The tables that ``simlab train`` fits for policies: calibration, ranks, a price, a 3-gram."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlab.cli.options import add_cost, add_draft_set, add_json, add_limit, add_track
from simlab.cli.parser import Parser, positive
from simlab.studies.fit_ngram import fit_ngram
from simlab.studies.fit_tables import CalibrationFit, PriceFit, RankFit, fit_calibration, fit_price, fit_ranks

_CALIBRATION = """A logistic map of a drafter's probabilities, by depth and class of rank, for policies like calibrated.
Fit it on other prompts than those it is judged on. The figures it prints are held out: prompts are dealt
into four parts, and each part is judged under maps fitted to the other three. The file is fitted to all.

  simlab train calibration --trace runs/dev --out runs/calibration.json
  simlab replay -p 'calibrated:budget=64,table="runs/calibration.json"'"""

_RANKS = """How often the drafter's candidate of each rank is the true token, by depth, for policies such as sequoia.

  simlab train ranks --trace runs/dev --out runs/ranks.json"""

_PRICE = """The rate, in tokens per second, at which the policy's own rounds bring as many expected tokens.

  simlab train price --trace runs/dev -p price:budget=256"""


_NGRAM = """The text is a table of token ids: Parquet with lists in the columns prompt_ids and text_ids, or JSONL with
one object a line that has them. What the target wrote is counted; a prompt only stands before it.

  simlab train ngram --text text.parquet --min-count 2 --out runs/mine.parquet
  simlab replay --trace other -p 'presto:ngram="runs/mine.parquet"'

Its tokens are those of --like, a trace: the tokenizer's digest is kept with the counts, and a trace of another one
refuses them. Pairs and triples that came less often than --min-count are left out, and what they had goes to shorter
contexts. With --trace the texts of a trace are counted: they hold its answers, so replay another one with them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Something that can be trained.

    Attributes:
        summary: its line in the list of kinds.
        details: its help below the summary.
        add_arguments: declares its options.
        run: trains it under these, and gives back the exit code.
    """

    summary: str
    details: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]


def _add_source(parser: Parser) -> None:
    """Add the recording that is fitted on."""
    parser.add_argument("--trace", required=True, metavar="DIR", help="a recorded trace of prompts to fit on")
    add_draft_set(parser)
    add_limit(parser)
    add_json(parser)
    add_track(parser)


def _add_table(parser: Parser) -> None:
    """Add the options of a table by rank."""
    _add_source(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the table to write")
    parser.add_argument(
        "--top-k", type=positive, default=64, metavar="N", help="ranks that are read at each depth (default 64)"
    )


def _add_price(parser: Parser) -> None:
    _add_source(parser)
    parser.add_argument("-p", "--policy", default="price", metavar="POLICY", help="without its rate (default price)")
    add_cost(parser)


def _add_ngram(parser: Parser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="token ids to count: .parquet or .jsonl")
    source.add_argument("--trace", metavar="DIR", help="a trace whose texts to count")
    parser.add_argument("--like", metavar="DIR", help="a trace of the same tokenizer (default: the packaged one)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file of counts: .parquet")
    parser.add_argument(
        "--min-count", type=positive, default=1, metavar="N", help="leave rarer pairs and triples out (default 1: none)"
    )
    add_limit(parser, "the first N texts only")
    add_track(parser)


def _table_options(options: argparse.Namespace) -> dict[str, Any]:
    """Everything but the trace that a table by rank is fitted with."""
    return {name: getattr(options, name) for name in ("out", "draft", "limit", "top_k", "track")}


def _run_calibration(options: argparse.Namespace) -> int:
    return _print_fit(fit_calibration(options.trace, **_table_options(options)), options.json)


def _run_ranks(options: argparse.Namespace) -> int:
    return _print_fit(fit_ranks(options.trace, **_table_options(options)), options.json)


def _run_price(options: argparse.Namespace) -> int:
    fit = fit_price(
        options.trace,
        options.policy,
        cost=options.cost,
        draft=options.draft,
        limit=options.limit,
        track=options.track,
    )
    return _print_fit(fit, options.json)


def _run_ngram(options: argparse.Namespace) -> int:
    fit = fit_ngram(
        out=options.out,
        trace=options.trace,
        text=options.text,
        like=options.like,
        min_count=options.min_count,
        limit=options.limit,
        track=options.track,
    )
    print(fit.text())
    return 0


def _print_fit(fit: CalibrationFit | RankFit | PriceFit, as_json: bool) -> int:
    """Print what was fitted, for people or for scripts."""
    print(json.dumps(fit.to_json(), indent=1, allow_nan=False) if as_json else fit.text())
    return 0


FITS = {
    "calibration": Kind("Calibrate the probabilities of a drafter.", _CALIBRATION, _add_table, _run_calibration),
    "ranks": Kind("Count how often a drafter's candidate of each rank is right.", _RANKS, _add_table, _run_ranks),
    "price": Kind(
        "Find the rate at which a policy should exchange seconds for tokens.", _PRICE, _add_price, _run_price
    ),
    "ngram": Kind("Count a 3-gram of the target's texts.", _NGRAM, _add_ngram, _run_ngram),
}
"""Every table that can be fitted, by the word that is typed behind ``simlab train``."""
