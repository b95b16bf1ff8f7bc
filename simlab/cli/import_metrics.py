"""``simlab import-metrics``: what engines and benchmarks counted, beside a trace."""

import argparse
import json
from pathlib import Path

from simlab.cli.options import add_json, add_limit, add_trace
from simlab.cli.parser import Parser, positive
from simlab.studies.engines.read_metrics import import_metrics

FAILED = 1

DETAILS = """Reads counts of speculative decoding: Prometheus text of vLLM, SGLang or TensorRT-LLM, the JSON of
`vllm bench serve --save-result`, the JSON lines of SGLang's bench_serving, and AIPerf's profile_export.jsonl.
The kind is told from the content.
Without --same-prompts the counts are those of other traffic, and the question is whether that traffic is like the
trace's: acceptance length and rates by position, with intervals, p-values adjusted for their number. Exit code 1: it is
not.
With --same-prompts the requests were the trace's own prompts, each once: every count is foretold. Exit code 1: they
differ.
--before takes off what the same server had counted at an earlier reading.

  simlab import-metrics metrics.txt --before metrics-yesterday.txt --trace runs/mine
  simlab import-metrics bench.json --same-prompts --limit 3 --max-new-tokens 32 --trace runs/mine
  simlab import-metrics profile_export.jsonl --trace runs/mine --json"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what an engine or a benchmark counted")
    add_trace(parser)
    parser.add_argument("--before", type=Path, metavar="FILE", help="an earlier Prometheus text of the same server")
    parser.add_argument(
        "--same-prompts", action="store_true", help="the requests were the trace's own prompts, each once, greedily"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, metavar="N", help="that each request asked for (default: as recorded)"
    )
    parser.add_argument(
        "--first-of-block",
        action="store_true",
        help="the engine drafts the recorded block and keeps its first tokens",
    )
    add_limit(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compare, and print what came out."""
    table = import_metrics(
        options.files,
        options.trace,
        before=options.before,
        same_prompts=options.same_prompts,
        max_new_tokens=options.max_new_tokens,
        first_of_block=options.first_of_block,
        draft=options.draft,
        limit=options.limit,
    )
    print(json.dumps(table.to_json(), indent=1, allow_nan=False) if options.json else table.text())
    return FAILED if table.has_failed else 0
