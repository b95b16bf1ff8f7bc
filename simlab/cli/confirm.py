"""``simlab confirm``: the real models run the policies that replay compared."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simlab.cli.parser import Parser, positive
from simlab.cli.record import add_execution, add_sampling, add_tap_offset, check_sampling
from simlab.errors import UsageError, at_the_door, needing_models
from simlab.policies.parsing.parse import NamedPolicy
from simlab.studies.confirm.chosen import Chosen, chosen_of
from simlab.studies.confirm.run import confirm
from simlab.studies.inputs.artefacts import shelf_of_models
from simlab.studies.inputs.priced_policies import with_references
from simlab.studies.inputs.trace import first_prompts
from simlab.traces.artefacts.optimum import Optimum, read_optimum
from simlab.traces.reader import Trace, open_trace, packaged_trace

FAILED = 1
_WITHOUT_CHOICE = ("ddtree:budget=16",)
_MIN_WIDTH, _EXACT_BUDGET = 64, 512
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "max_new_tokens", "chat_template_kwargs")
_MODELS = ("target", "draft", "dtype", "device", "execution", "threads")
_RUN = (*_MODELS, "out", "limit", "repeats", "batch", "batch_invariant", "resume", "until_interval")
_MOST_REPEATS = 10
"""Where a stop rule decides, and nothing else was asked for: repeats make the clock's noise small, and no more."""

DETAILS = """Decodes the prompts of a trace with the real models, every policy in turn, and says whether the
prediction was true: how fast, which rounds, and whether the text is the target's own.
The prompts are those of --trace DIR, of --prompts FILE (recorded first, into OUT/trace), or of the
small trace that comes with simlab. Plain decoding and the chain always run.
Exit code 1: a text is not the target's, or rounds are not those of their replay.

With --from it runs what `simlab optimize` chose: its best policy, the closest rivals and the chain.
--until-interval X ends the run when every speed ratio is known to a share X of it, --time-limit M after M minutes,
whichever comes first; where prompts are used up before, each is run again.
--batch N serves N texts at a time, under plain decoding too: prompts in groups, each served from its first text to
the end of its last by every policy in turn. It confirms `simlab replay --batch N`, at prices of `simlab profile
--batch N`.
--batch-invariant gives every pass of the target the shape of the largest one, so that in bfloat16 too every policy
writes the text of plain decoding, token for token. Plain decoding then pays for as many rows, so speeds and speedups
are those of this mode, and nothing is predicted.

  simlab confirm -p ddtree:budget=16 --dtype bfloat16 --cost runs/cost.json
  simlab confirm --from runs/optimize.json --cost runs/cost.json --until-interval 0.03 --time-limit 20
  simlab confirm --batch 4 -p ddtree:budget=8 -p joint:budget=32 --cost runs/cost4.json --out runs/batches
  simlab confirm --batch-invariant -p ddtree:budget=8 --dtype bfloat16 --limit 8 --out runs/invariant
  simlab confirm -p ddtree:budget=8/16/32 --prompts prompts.jsonl --limit 20 --out runs/mine"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "-p", "--policy", action="append", default=[], metavar="POLICY", help="see `simlab policies`; may be repeated"
    )
    parser.add_argument(
        "--from", dest="choice", type=Path, metavar="FILE", help="run what `simlab optimize --out FILE` chose"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--trace", metavar="DIR", help="a recorded trace: a folder, or an address such as hf://...")
    source.add_argument("--prompts", type=Path, metavar="FILE", help="prompts to record first; see `simlab record`")
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="prices: a cost file of just what is run, or a shipped one",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--batch", type=positive, metavar="N", help="serve N texts at a time; without it each alone")
    parser.add_argument("--by", choices=("dataset", "context", "turn"), help="a table for each, and one of all")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/confirm"),
        metavar="DIR",
        help="log, result rows and summary (default runs/confirm)",
    )
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_running(parser.add_argument_group("running"))
    add_sampling(parser.add_argument_group("sampling, with --prompts; a trace brings its own"))


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--target", metavar="T", help="a folder, or a Hub id (default: as the trace names it)")
    group.add_argument(
        "--draft", metavar="D", help="a folder, a *.safetensors file, or a Hub id (default: as the trace names it)"
    )
    add_tap_offset(group, "as the trace was recorded")
    group.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="default float32")
    group.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, ... (default cpu)")
    add_execution(group)
    group.add_argument(
        "--batch-invariant",
        action="store_true",
        help="passes of one fixed shape: the same text in any dtype, slower; caddtree, bastion and price may draft 512 "
        "tokens unless told less, and then every pass has 520 rows: give them budget=16",
    )
    group.add_argument("--threads", type=positive, metavar="N", help="of the CPU (default: as torch chooses)")
    group.add_argument(
        "--repeats",
        type=positive,
        metavar="N",
        help=f"how often each text is decoded (default 1; with a stop rule at most {_MOST_REPEATS})",
    )
    group.add_argument(
        "--until-interval",
        type=float,
        metavar="X",
        help="stop when every 95 %% interval of a speed ratio reaches no further than this share: 0.03 is 3 %%",
    )
    group.add_argument(
        "--time-limit",
        type=float,
        metavar="M",
        help="stop after so many minutes of measuring, at a whole prompt; the audit comes after; 0 with --resume: now",
    )


def run(options: argparse.Namespace) -> int:
    typed = {name: value for name, value in vars(options).items() if value is not None}
    _check_typed(typed)
    optimum = _optimum(options.choice)
    asked = [*(() if optimum is None else optimum.run), *options.policy] or list(_WITHOUT_CHOICE)
    trace = _trace(typed)
    policies, in_sample = _policies(asked, options, trace if trace is not None else _same_models(typed))
    with needing_models("confirm"):
        from simlab.real_runner.confirm.log import check_out
        from simlab.real_runner.confirm.options import ConfirmOptions
    with at_the_door():
        # What is recorded first says in its manifest which layers were read.
        read_as = {} if "prompts" in typed or "tap_offset" not in typed else {"tap_offset": typed["tap_offset"]}
        asked_of = {name: typed[name] for name in _RUN if name in typed}
        wanted = ConfirmOptions(**{**asked_of, **_ending(typed), **read_as})
    check_out(wanted.out, wanted.resume)
    try:
        if trace is None:
            trace = _recorded(typed, policies)
            policies, in_sample = _policies(asked, options, trace)
        chosen = None if optimum is None else _chosen(options, optimum, trace, policies)
        done = confirm(wanted, trace, policies, options.cost, in_sample, options.by, chosen)
    except KeyboardInterrupt:
        print(f"\nsimlab: interrupted; finished parts are in {wanted.out}: add --resume to go on", file=sys.stderr)
        raise
    print(json.dumps(done.value(), indent=1, allow_nan=False) if options.json else done.text())
    if not options.json:
        print(f"\nLog, result rows and summary: {wanted.out}")
    return FAILED if done.has_failed else 0


def _chosen(
    options: argparse.Namespace, optimum: "Optimum", trace: "Trace", policies: "Sequence[NamedPolicy]"
) -> "Chosen":
    wanted = set(first_prompts(trace, options.limit))
    records = [record for record in trace.sequences() if record.index in wanted]
    return chosen_of(options.choice, optimum, records, policies)


def _optimum(path: Path | None) -> "Optimum | None":

    return None if path is None else read_optimum(path)


def _ending(typed: dict[str, object]) -> dict[str, object]:
    """When the run ends: repeats, unless they were typed, and the seconds of the time limit."""
    found: dict[str, object] = {}
    if {"until_interval", "time_limit"} & set(typed) and "repeats" not in typed:
        found["repeats"] = _MOST_REPEATS
    if "time_limit" in typed:
        minutes = float(str(typed["time_limit"]))
        if not minutes >= 0:
            raise UsageError(f"--time-limit is in minutes and must not be negative; got {minutes:g}")
        found["time_limit_s"] = 60 * minutes
    return found


def _policies(
    asked: "Sequence[str]", options: argparse.Namespace, trace: "Trace | None"
) -> "tuple[list[NamedPolicy], tuple[str, ...]]":
    """Those that were asked for, and the labels of those that are judged in sample.

    Args:
        asked: as they were typed, or read from a file.
        options: as they were typed.
        trace: whose models artefacts must be of; None where they are not known yet.
    """
    shelf = shelf_of_models(options.cost, trace, options.draft, options.dtype, options.batch or 1)
    found = with_references(list(dict.fromkeys(asked)), shelf)
    return found, shelf.in_sample(found)


def _same_models(typed: dict[str, object]) -> "Trace | None":
    """Before prompts are recorded a trace of the models that will record them, if it is the packaged one."""
    packaged = open_trace(packaged_trace())
    drafters = {one.model.name for one in packaged.manifest.draft_sets.values()}
    is_same = typed.get("target", packaged.manifest.target.name) == packaged.manifest.target.name
    return packaged if is_same and typed.get("draft", *drafters) in drafters else None


def _check_typed(typed: dict[str, object]) -> None:
    given = [name for name in _SAMPLING if name in typed]
    if given and "prompts" not in typed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names} can change nothing about a trace; leave it out, or record anew with --prompts FILE")
    check_sampling(typed)


def _trace(typed: dict[str, object]) -> "Trace | None":
    """The trace that was asked for; None with --prompts, of which it is still to be recorded."""
    if "prompts" in typed:
        return None
    trace = typed.get("trace")
    return open_trace(str(trace) if trace is not None else packaged_trace())


def _recorded(typed: dict[str, object], policies: "list[NamedPolicy]") -> "Trace":
    """A recording in which every policy finds what it reads."""
    with needing_models("confirm"):
        from simlab.real_runner.checkpoints import files as dflash_files
        from simlab.real_runner.record.options import RecordOptions
        from simlab.real_runner.record.record import record
        from simlab.real_runner.targets import builtin
    needs = [one.policy.needs for one in policies]
    whole = [one.policy.budget for one in policies if one.policy.needs.draft and one.policy.needs.top_k is None]
    given: dict[str, object] = {
        "target": builtin.NAME,
        "draft": dflash_files.PACKAGED,
        "min_width": max([_MIN_WIDTH, *(one.top_k or 0 for one in needs)]),
        "exact_budget": max([_EXACT_BUDGET, *whole]),
    }
    names = ("target", "draft", "dtype", "device", "limit", "prompts", "resume", "tap_offset", *_SAMPLING)
    given |= {name: typed[name] for name in names if name in typed}
    with at_the_door():
        chosen = RecordOptions(out=Path(str(typed["out"])) / "trace", **given)  # type: ignore[arg-type]
    return open_trace(record(chosen))
