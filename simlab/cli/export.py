"""``simlab export``: what other programs read."""

import argparse
import sys
from pathlib import Path

from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError
from simlab.studies.export.conformance import conformance_text
from simlab.studies.export.engines import ENGINES, engine_text
from simlab.studies.export.tables import TABLES, tables_file

CONFORMANCE = "conformance"

_DETAILS = """Without --out the export goes to standard output, and what to know about it to standard error.

conformance: JSON lines to test an implementation of a policy in another engine against. Each
  line is a round: candidates and what else the policy was given, the tree that it chose, what the
  target said, and what is kept of its pass. docs/reference/conformance.md has the keys, and a reader.
vllm, sglang, tensorrt-llm: settings for a serving engine. The acceptance of the policy, so that a server
  accepts as many tokens in a load test before there is a kernel for its trees; and how many tokens a chain
  should draft at each batch size, where there are prices of several: --cost FILE for each, or --batches, which
  works them out from the prices of one text and says so.
modelopt: speculation_profile.json of NVIDIA's Model-Optimizer; experimental, its schema is under review.
latex, markdown: the table of a result file, ready for a paper or a page.
docs/how_to/export.md says what each field is, where it was read, and what cannot be expressed.

  simlab export --format conformance -p ddtree:budget=16 --limit 2 --out ddtree.jsonl
  simlab export --format vllm -p ddtree:budget=32 --out vllm.json
  simlab export --format sglang -p chain:length=7 --batches 1,2,4 --out adaptive.json
  simlab export --format tensorrt-llm -p chain --cost one.json --cost eight.json --out extra.yaml
  simlab export --format latex --results results.parquet --by dataset --out table.tex"""

_READ_BY = {
    "trace": (CONFORMANCE, *ENGINES),
    "policy": (CONFORMANCE, *ENGINES),
    "draft": (CONFORMANCE, *ENGINES),
    "cost": (CONFORMANCE, *ENGINES),
    "limit": (CONFORMANCE, *ENGINES),
    "rounds": (CONFORMANCE,),
    "made_up": (CONFORMANCE,),
    "batches": ("vllm", "sglang", "tensorrt-llm"),
    "draft_tokens": ("vllm",),
    "progress": ENGINES,
    "results": TABLES,
    "by": TABLES,
}
"""Which formats read an option; with the others it is refused."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "export", "Write policies and results for other programs.", _DETAILS)
    parser.add_argument("--format", required=True, choices=(CONFORMANCE, *ENGINES, *TABLES), help="what to write")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write (default: standard output)")
    rounds = parser.add_argument_group("of a policy on a trace")
    rounds.add_argument("--trace", metavar="DIR", help="a recorded trace; without it the one that comes with simlab")
    rounds.add_argument("-p", "--policy", metavar="POLICY", help="see `simlab policies`; one point")
    rounds.add_argument("--draft", metavar="NAME", help="the draft set, where the trace holds more than one")
    rounds.add_argument(
        "--cost",
        type=Path,
        action="append",
        metavar="FILE",
        help="prices: a file of `simlab profile` or `simlab import-cost`, or the name of a shipped one; "
        "for engines one for each batch size",
    )
    rounds.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    rounds.add_argument(
        "--batches",
        type=_batches,
        metavar="N,N,...",
        help="batch sizes of the table; those without a cost file of their own are worked out from the prices of one "
        "text, as `simlab replay --what-if batch=N` does, and marked",
    )
    rounds.add_argument(
        "--draft-tokens",
        type=positive,
        metavar="N",
        help="tokens a round drafts in vLLM's load test, such as a tree's budget, so that passes are as wide "
        "(default: as deep as the policy drafts)",
    )
    rounds.add_argument(
        "--rounds", type=positive, metavar="N", help="conformance: the first N rounds of each text only"
    )
    rounds.add_argument(
        "--made-up",
        type=positive,
        metavar="N",
        help="conformance: also rounds of N short made-up texts, many with exact ties",
    )
    rounds.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="a progress bar; by default on a terminal, after two seconds",
    )
    tables = parser.add_argument_group("of results")
    tables.add_argument("--results", type=Path, metavar="FILE", help="a file of `simlab replay --out` or of a run")
    tables.add_argument("--by", choices=("dataset", "context", "turn"), help="a table for each, and one of all")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    if options.format == CONFORMANCE:
        text, said = conformance_text(options)
        notes: list[str] = []
    elif options.format in ENGINES:
        text, said, notes = engine_text(options)
    else:
        text, said, notes = tables_file(options)
    _write(options.out, text, said)
    for note in notes:
        print(note, file=sys.stderr)
    return 0


def _write(path: Path | None, text: str, said: str) -> None:
    from simlab.traces.format.files import write_beside

    if path is None:
        sys.stdout.write(text)
        return
    write_beside(path, lambda file: file.write(text.encode()))
    print(f"{said}: {path}")


def _check(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be done after it, or would be left unread."""
    if options.out is not None and options.out.is_dir():
        raise UsageError(f"--out names the folder {options.out}; expected a file, such as {options.out / 'out.json'}")
    for name, formats in _READ_BY.items():
        if getattr(options, name) is not None and options.format not in formats:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is read with --format {', '.join(formats)}, not with {options.format}")
    needed = "results" if options.format in TABLES else "policy"
    if getattr(options, needed) is None:
        example = "--results results.parquet" if needed == "results" else "-p ddtree:budget=16"
        raise UsageError(f"--format {options.format} needs --{needed}, such as {example}")


def _batches(text: str) -> tuple[int, ...]:
    """Batch sizes, ascending.

    >>> _batches("8,1,2")
    (1, 2, 8)
    """
    try:
        found = tuple(sorted({positive(part) for part in text.split(",")}))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"expected batch sizes such as 1,2,4,8; got {text!r}") from error
    return found
