"""``simlab prompts``: a prompt file of a public benchmark, or of what comes with simlab."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_json, add_limit
from simlab.cli.parser import Parser, not_negative, seed
from simlab.studies.prompts.prompts import NAMES, prompts

DETAILS = """Benchmarks are read from --from FILE, your own copy (GSM8K's test.jsonl, mbpp.jsonl or sanitized-mbpp.json,
HumanEval.jsonl.gz, MT-bench's question.jsonl, or the hub's Parquet), else from the Hugging Face Hub.
Questions are put in the words of the DFlash release's benchmark.

  split   gsm8k      mbpp                humaneval                  mt-bench
  test    its test   tasks 11 to 510     three of four              three of four
  dev     its train  tasks 601 to 974    numbers 2, 6, 10, ...      questions 82, 86, 90, ...
  all     -          -                   all 164                    all 80

Choose on dev, report on test: no prompt is in both. sample has the prompts of the packaged trace, demo and
demo-dev those of `simlab demo`, field and field-dev those of `simlab field`.

  simlab prompts gsm8k --split dev --seed 0 --limit 40 --out runs/dev.jsonl
  simlab prompts gsm8k --from grade_school_math/data/test.jsonl --limit 100 --out runs/gsm8k.jsonl
  simlab record --prompts runs/gsm8k.jsonl --out runs/gsm8k"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the prompt file, JSON lines")
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="your own copy, or a dataset ORG/NAME on the hub (default there)"
    )
    parser.add_argument("--split", choices=("test", "dev", "all"), help="which prompts: see above (default test)")
    parser.add_argument("--seed", type=seed, metavar="N", help="in a drawn order (default: as in the file)")
    parser.add_argument("--skip", type=not_negative, default=0, metavar="N", help="leave out the first N (default 0)")
    add_limit(parser, "N prompts, at most")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write the file, and say what is in it."""
    made = prompts(
        options.name,
        out=options.out,
        source=options.source,
        split=options.split,
        seed=options.seed,
        skip=options.skip,
        limit=options.limit,
    )
    print(json.dumps(made.to_json(), indent=1) if options.json else made.text())
    return 0
