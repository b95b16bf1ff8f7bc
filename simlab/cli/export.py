"""``simlab export``: what other programs read."""

import argparse
import sys
from pathlib import Path

from simlab.cli.options import add_by, add_costs, add_draft_set, add_limit, add_progress, batch_sizes
from simlab.cli.parser import Parser, between, positive
from simlab.errors import UsageError
from simlab.studies.export.engines import MOST_DRAFT_TOKENS
from simlab.studies.export.export import FORMATS, export
from simlab.studies.export.push import check_alone, prepared
from simlab.traces.format.files import write_beside
from simlab.untrusted.visible import visible

_MOST_MADE_UP = 10_000
_WITH_FORMAT = (
    *("policy", "draft", "cost", "limit", "batches", "block_trace", "draft_tokens", "rounds", "made_up", "progress"),
    *("results", "by", "out"),
)

DETAILS = """Without --out the export goes to standard output, and what to know about it to standard error.

conformance: JSON lines to test an implementation of a policy in another engine against. Each
  line is a round: candidates and what else the policy was given, the tree that it chose, what the
  target said, and what is kept of its pass. docs/reference/conformance.md has the keys, and a reader.
vllm, sglang, tensorrt-llm: settings for a serving engine. The last line starts it, or says that it cannot run the
  policy: with the drafters of traces these engines draft chains only. The line before starts a load test, in which a
  server accepts as many tokens as the policy would. vllm and tensorrt-llm: also how many tokens a chain should draft
  at each batch size, where there are latency profiles of several: --cost FILE for each, or --batches, which works
  them out from the profile of one text and says so.
modelopt: speculation_profile.json of NVIDIA's Model-Optimizer, predicted; experimental, its schema is under review.
sglang-sps, vllm-curves: cost tables of the engines' schedulers, from cost files, one of each batch size.
sglang-sts: a temperature for each position of a block, fitted on the trace.
latex, markdown: the table of a result file, ready for a paper or a page.
--push sends a finished trace with a card, README.md: its own files, each checked before. A repository on the hub is
  private unless --public is given; --dry-run prints the files and the card, and asks nobody.
docs/how_to/export.md says what each field is, where it was read, and what cannot be expressed.

  simlab export --format conformance -p ddtree:budget=16 --limit 2 --out ddtree.jsonl
  simlab export --format vllm -p chain --batches 1,2,4 --out vllm.json
  simlab export --format sglang -p chain --out sglang.yaml
  simlab export --format tensorrt-llm -p chain --cost one.json --cost eight.json --out extra.yaml
  simlab export --format sglang-sps --cost one.json --cost eight.json --out dspark_sps.json
  simlab export --format latex --results results.parquet --by dataset --out table.tex
  simlab export --push hf://datasets/ORG/NAME --trace runs/mine --license apache-2.0 --dry-run"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--format", choices=FORMATS, help="what to write")
    what.add_argument(
        "--push",
        metavar="PLACE",
        help="send --trace with a card: hf://datasets/OWNER/NAME[@REVISION][/FOLDER], s3://BUCKET/PREFIX, or a folder",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write (default: standard output)")
    rounds = parser.add_argument_group("of a policy on a trace")
    rounds.add_argument("--trace", metavar="DIR", help="a recorded trace (default: the packaged one)")
    rounds.add_argument("-p", "--policy", metavar="POLICY", help="see `simlab policies`; one point")
    add_draft_set(rounds)
    add_costs(
        rounds,
        "latency profile: a file of `simlab profile` or `simlab import-cost`, or the name of a packaged one; "
        "for a table of batch sizes one of each",
    )
    add_limit(rounds)
    rounds.add_argument(
        "--batches",
        type=batch_sizes,
        metavar="N,N,...",
        help="batch sizes of the table; those without a cost file of their own are worked out from the profile of one "
        "text, as `simlab replay --what-if batch=N` does, and marked",
    )
    rounds.add_argument(
        "--block-trace",
        action="append",
        default=[],
        metavar="DIR",
        help="a trace of the same texts that was recorded with another --block; may be repeated. The table then has "
        "the lengths of these blocks alone, as an engine drafts them",
    )
    rounds.add_argument(
        "--draft-tokens",
        type=between(1, MOST_DRAFT_TOKENS),
        metavar="N",
        help="tokens a round drafts in vLLM's load test, such as a tree's budget, so that passes are as wide "
        "(default: as deep as the policy drafts)",
    )
    rounds.add_argument(
        "--rounds", type=positive, metavar="N", help="conformance: the first N rounds of each text only"
    )
    rounds.add_argument(
        "--made-up",
        type=between(1, _MOST_MADE_UP),
        metavar="N",
        help="conformance: also rounds of N short synthetic texts, many with exact ties",
    )
    add_progress(rounds)
    pushed = parser.add_argument_group("with --push")
    pushed.add_argument("--public", action="store_true", help="a repository that is made may be seen by everybody")
    pushed.add_argument("--license", metavar="ID", help="of the texts, as the hub names it, such as apache-2.0")
    pushed.add_argument("--dry-run", action="store_true", help="print what would be sent, and send nothing")
    tables = parser.add_argument_group("of results")
    tables.add_argument("--results", type=Path, metavar="FILE", help="a file of `simlab replay --out` or of a run")
    add_by(tables)


def run(options: argparse.Namespace) -> int:
    """Make the file, and write or print it; or send a trace."""
    if options.push is not None:
        return _push(options)
    for name in ("public", "license", "dry_run"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is read with --push, not with --format {options.format}")
    if options.out is not None and options.out.is_dir():
        raise UsageError(f"--out names the folder {options.out}; expected a file, such as {options.out / 'out.json'}")
    made = export(
        options.format,
        options.policy,
        trace=options.trace,
        draft=options.draft,
        cost=options.cost,
        limit=options.limit,
        rounds=options.rounds,
        made_up=options.made_up,
        batches=options.batches,
        draft_tokens=options.draft_tokens,
        block_traces=options.block_trace,
        progress=options.progress,
        results=options.results,
        by=options.by,
        out=options.out,
    )
    if options.out is None:
        sys.stdout.write(made.text)
    else:
        write_beside(options.out, lambda file: file.write(made.text.encode()))
        print(f"{made.summary}: {options.out}")
    for note in made.notes:
        print(visible(note), file=sys.stderr)
    return 0


def _push(options: argparse.Namespace) -> int:
    """Send a trace, or print what would be sent."""
    check_alone({name: getattr(options, name) for name in _WITH_FORMAT})
    if options.trace is None:
        raise UsageError("--push sends the trace of --trace DIR; name one")
    made = prepared(options.push, options.trace, options.license, options.public)
    if options.dry_run:
        print(visible(made.text()))
        print("\nNothing was sent.", file=sys.stderr)
        return 0
    place = made.send()
    print(f"{len(made.sizes())} files, {sum(made.sizes().values()):,} bytes: {place}")
    return 0
