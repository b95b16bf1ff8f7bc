"""``simlab profile``: what drafting, selecting, verifying and committing take on this machine."""

import argparse
import contextlib
import json
import sys
from importlib.resources import files
from pathlib import Path

from simlab.cli.parser import Parser, not_negative, positive
from simlab.cli.profile_text import profile_text
from simlab.cli.record import add_execution, add_tap_offset
from simlab.errors import at_the_door, needing_models
from simlab.studies.inspect.cost import cost_json
from simlab.traces.artefacts.cost import read_cost_file

_PROMPTS = Path(str(files("simlab"))) / "data" / "demo_prompts.jsonl"
_MODELS = {"target": "smollm2-135m", "draft": "dflash-smollm2-135m"}
_HIGHEST = 1_000_000

DETAILS = """Runs real rounds of target and drafter over a grid of tree sizes and context lengths, and plain
decoding beside them, and writes the seconds of each stage to one file, with which `simlab replay --cost`
predicts speeds. It measures what else the machine does, too: leave it alone meanwhile.

  simlab profile --dtype bfloat16 --out runs/cost.json
  simlab profile --batch 4 --out runs/cost4.json      for simlab replay --batch 4 --cost runs/cost4.json
  simlab profile --out runs/cost.json --resume        go on, under the options it was begun with"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--target", metavar="T", help=f"a folder, or a Hub id (default {_MODELS['target']})")
    parser.add_argument(
        "--draft", metavar="D", help=f"a folder, a *.safetensors file, or a Hub id (default {_MODELS['draft']})"
    )
    add_tap_offset(parser, "as the drafter's format has it")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/cost.json"),
        metavar="FILE",
        help="the cost file (default runs/cost.json)",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the file that is there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_grid(parser.add_argument_group("what is measured"))
    _add_sampling(parser.add_argument_group("sampling, which is part of verification"))
    _add_running(parser.add_argument_group("running"))


def _add_grid(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--node-counts",
        type=_node_counts,
        metavar="LIST",
        help="drafted tokens, such as 1,2,8..12; 0 is always measured (default 18 numbers from 0 to 512; with "
        "cuda_graphs both ends of each size of a pass)",
    )
    group.add_argument(
        "--contexts", type=_contexts, metavar="LIST", help="tokens before the root (default 128,256,512,1024,2048)"
    )
    group.add_argument("--repeats", type=positive, metavar="N", help="samples of each (default 6)")
    group.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="texts at a time, each with as many drafted tokens and as long a context (default 1)",
    )


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--temperature", type=float, metavar="X", help="0 takes the likeliest (default 0)")
    group.add_argument("--top-p", type=float, metavar="X", help="1 for no cut (default 1)")
    group.add_argument("--top-k", type=not_negative, metavar="N", help="0 for no cut (default 0)")


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default float32")
    group.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default cpu)")
    add_execution(group)
    group.add_argument("--threads", type=positive, metavar="N", help="of the CPU (default: as torch chooses)")


def _node_counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({0, *_whole_numbers(text)}))


def _contexts(text: str) -> tuple[int, ...]:
    found = tuple(sorted(set(_whole_numbers(text))))
    if found[0] == 0:
        raise argparse.ArgumentTypeError(f"expected whole numbers, at least 1; got {text!r}")
    return found


def _whole_numbers(text: str) -> list[int]:
    """``1,2,8..12``, both ends included, in any order."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = not_negative(first)
        high = not_negative(last) if dots else low
        if not low <= high <= _HIGHEST:
            raise argparse.ArgumentTypeError(f"expected rising ranges such as 8..12, up to {_HIGHEST:,}; got {part!r}")
        found += range(low, high + 1)
    return found


def run(options: argparse.Namespace) -> int:
    from simlab.real_runner.profile.options import ProfileOptions

    with at_the_door():
        chosen = ProfileOptions(**_given(options))  # type: ignore[arg-type]
    with needing_models("profile"):
        from simlab.real_runner.profile.profile import profile
    try:
        done = profile(chosen)
    except KeyboardInterrupt:
        print(f"\nsimlab: interrupted; what was measured is in {chosen.out}: add --resume to go on", file=sys.stderr)
        raise
    if done.num_visits == 0:
        print(f"{chosen.out} has {done.file.repeats} samples of everything; nothing was measured", file=sys.stderr)
    print(
        json.dumps(cost_json(chosen.out, done.file), indent=1) if options.json else profile_text(chosen.out, done.file)
    )
    return 0


def _given(options: argparse.Namespace) -> dict[str, object]:
    """What was typed; before it what the file says that is gone on with, and before that the defaults."""
    from simlab.real_runner.profile.options import node_counts_for, options_of

    typed = {name: value for name, value in vars(options).items() if value is not None}
    for name in ("run", "command", "json"):
        typed.pop(name)
    begun = options_of(read_cost_file(options.out)) if options.resume and options.out.is_file() else {}
    found = {**_MODELS, "text": reading_text(), **begun, **typed}
    if "node_counts" not in found and "execution" in found:
        found["node_counts"] = node_counts_for(str(found["execution"]))
    return found


def reading_text() -> str:
    """Real words for the models to read: the demo's prompts, then Python's own documentation where it is installed."""
    rows = [json.loads(line) for line in _PROMPTS.read_text(encoding="utf-8").splitlines()]
    parts = [turn for row in rows for turn in row["turns"]]
    with contextlib.suppress(ModuleNotFoundError):
        from pydoc_data.topics import topics

        parts += topics.values()
    return "\n\n".join(parts)
