"""``simlab crosscheck``: does a live server do what a trace foretells?"""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_draft_set, add_json, add_limit, add_progress
from simlab.cli.parser import Parser, positive
from simlab.studies.engines.crosscheck import crosscheck

FAILED = 1

DETAILS = """Sends the prompts of a trace, as token ids and decoded greedily, to a server that runs the trace's
target and drafter, and holds texts, rounds and counters against what the trace foretells of a chain.
vLLM tells every round where it is started with --per-request-spec-decode-metrics detailed; SGLang and
TensorRT-LLM tell the rounds of each request. The finest level that the engine tells is compared, and named.
Verdicts: confirmed; confirmed up to ties (texts or rounds part at close calls alone); lengths agree; and, with exit
code 1, rounds differ, texts differ, lengths differ.
The trace must be of the engine's own block: a drafter that is asked for fewer tokens drafts a smaller block, whose
tokens are other ones. `simlab record --block N` records one.
Nothing is sent to any other address, redirects are not followed, and no torch is needed.

  simlab crosscheck --endpoint http://127.0.0.1:8000 --trace runs/mine
  simlab crosscheck --endpoint http://gpu7:8000 --trace runs/mine --concurrency 8 --exact-counters --out runs/vllm
  simlab crosscheck --answers runs/vllm/answers.jsonl --trace runs/mine --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--endpoint", metavar="URL", help="the server's address, such as http://127.0.0.1:8000")
    source.add_argument("--answers", type=Path, metavar="FILE", help="answers that an earlier crosscheck kept")
    parser.add_argument("--trace", metavar="DIR", required=True, help="of the server's target and drafter, greedy")
    add_draft_set(parser)
    parser.add_argument(
        "--engine",
        choices=("auto", "vllm", "sglang", "trtllm"),
        default="auto",
        help="what serves there (default: by the names of its metrics)",
    )
    parser.add_argument("--model", metavar="NAME", help="the name under which the target is served")
    add_limit(parser)
    parser.add_argument("--concurrency", type=positive, default=1, metavar="N", help="requests at a time (default 1)")
    parser.add_argument(
        "--max-new-tokens", type=positive, metavar="N", help="ask for at most so many (default: as recorded)"
    )
    parser.add_argument(
        "--exact-counters",
        action="store_true",
        help="ask for a round less than was recorded, so that every counter is foretold to the unit",
    )
    parser.add_argument(
        "--first-of-block",
        action="store_true",
        help="the engine drafts the recorded block and keeps its first tokens",
    )
    parser.add_argument(
        "--shared-server", action="store_true", help="others use the server meanwhile; leave its counters out"
    )
    parser.add_argument(
        "--tie",
        type=float,
        metavar="X",
        help="logits or nats within which a choice is a close call (default 0.001 where all is float32, else 0.5)",
    )
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S", help="seconds for one answer (default 600)"
    )
    parser.add_argument("--key-variable", metavar="NAME", help="the environment variable with the server's key")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the result and the answers there")
    add_json(parser)
    add_progress(parser)


def run(options: argparse.Namespace) -> int:
    """Ask, compare, and print what came out."""
    table = crosscheck(
        options.endpoint,
        options.trace,
        engine=options.engine,
        model=options.model,
        draft=options.draft,
        limit=options.limit,
        concurrency=options.concurrency,
        max_new_tokens=options.max_new_tokens,
        exact_counters=options.exact_counters,
        first_of_block=options.first_of_block,
        shared_server=options.shared_server,
        tie=options.tie,
        time_limit=options.time_limit,
        key_variable=options.key_variable,
        answers=options.answers,
        out=options.out,
        progress=options.progress,
    )
    print(json.dumps(table.to_json(), indent=1, allow_nan=False) if options.json else table.text())
    return FAILED if table.has_failed else 0
