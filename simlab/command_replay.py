"""``simlab replay``: policies on a recorded trace, and the table of what they did."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.command_cost import Prices, prices_of
from simlab.command_line import Parser, UsageError, add_command, positive
from simlab.cost import StageSeconds, price, price_rounds
from simlab.errors import TraceError
from simlab.replay import Round, check_needs, hindsight_rounds, rounds, totals_of

if TYPE_CHECKING:
    from simlab.policies.spec import NamedPolicy
    from simlab.recorded import RecordedSequence
    from simlab.traces.reader import Trace

HINDSIGHT = "hindsight"
_WITHOUT_CHOICE = ("ddtree:budget=16/64",)

_DETAILS = """Without --trace it takes the small trace that comes with simlab.
Plain decoding (autoregressive), the chain and the hindsight bound are always in the table;
without -p so are ddtree:budget=16/64.
Speeds are priced with measured seconds: those of --cost FILE, else those that come with simlab
for the trace's models, if there are any. `simlab profile` measures them on this machine.

  simlab replay -p ddtree:budget=16/32/64
  simlab replay --trace runs/mine -p chain:length=1..7 --by dataset --out results.parquet"""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "replay", "Replay policies on a recorded trace, exactly.", _DETAILS)
    parser.add_argument("--trace", metavar="DIR", help="a recorded trace: a folder, or an address such as hf://...")
    parser.add_argument(
        "-p", "--policy", action="append", default=[], metavar="POLICY", help="see `simlab policies`; may be repeated"
    )
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where the trace holds more than one")
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="prices: a file of `simlab profile`, or the name of a shipped one",
    )
    parser.add_argument("--by", choices=("dataset", "turn"), help="a table for each dataset or turn, and one of all")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result rows, one per policy and sequence")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="a progress bar; by default on a terminal, after two seconds",
    )
    parser.set_defaults(run=_run)


def replay_trace(
    trace: "Trace",
    draft: str,
    policies: "Sequence[NamedPolicy]",
    limit: int | None,
    progress: bool | None,
    prices: Prices,
) -> list[dict[str, object]]:
    """Result rows, for each sequence one per policy and one of the hindsight bound at the end.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a policy drafted more tokens than have a price.
    """
    from simlab.ids import content_id

    kept = trace.manifest.draft_sets[draft]
    for one in policies:
        check_needs(one.policy, kept.exact_budget, kept.min_width)
    budget = largest_budget(policies, kept.depth)
    bound = {"name": HINDSIGHT, "settings": {"budget": budget}, "artefacts": {}}
    bound_columns = {"policy": f"{HINDSIGHT}:budget={budget}", "policy_id": content_id(bound), **bound}
    cost = prices.cost
    rows: list[dict[str, object]] = []
    for recorded in _with_progress(trace, draft, limit, progress):
        shared = shared_columns(trace, draft, recorded, prices)
        prompt_length = len(recorded.prompt.token_ids)
        for one in policies:
            named = {"policy": one.label, "policy_id": one.policy_id, "name": one.name, "settings": dict(one.settings)}
            found = list(rounds(one.policy, recorded))
            seconds = None if cost is None else price(one.policy, found, prompt_length, cost)
            rows.append(shared | _columns(named, found, seconds))
        found = list(hindsight_rounds(recorded, budget))
        seconds = None if cost is None else price_rounds(found, prompt_length, cost, with_draft=True)
        rows.append(shared | _columns(bound_columns, found, seconds))
    return rows


def replay_prices(
    path: Path | None, trace: "Trace", draft: str, policies: "Sequence[NamedPolicy]", limit: int | None
) -> Prices:
    """The prices of a cost file, or without one those that come with simlab for the trace's models.

    Raises:
        CostError: the file that was asked for cannot price this trace.
    """
    wanted = set(first_prompts(trace, limit))
    texts = [record for record in trace.sequences() if record.index in wanted and len(record.text) > 1]
    longest = max((len(record.prompt.token_ids) + len(record.text) - 2 for record in texts), default=0)
    return prices_of(path, trace, draft, longest, largest_budget(policies, trace.manifest.draft_sets[draft].depth))


def largest_budget(policies: "Sequence[NamedPolicy]", depth: int) -> int:
    """The most tokens that any of the policies drafts in a round, and at least a whole block."""
    return max([depth] + [one.policy.budget for one in policies if one.name != "chain"])


def with_references(texts: Sequence[str]) -> "list[NamedPolicy]":
    """The policies that were asked for, after plain decoding and the whole chain where these were not.

    The hindsight bound may be asked for by name; it is no policy and is always there.
    """
    from simlab.policies.spec import parse_policies

    asked = parse_policies([text for text in texts if text != HINDSIGHT])
    ids = {one.policy_id for one in asked}
    return [one for one in parse_policies(["ar", "chain"]) if one.policy_id not in ids] + asked


def _columns(named: Mapping[str, object], found: Sequence[Round], seconds: StageSeconds | None) -> dict[str, object]:
    identity = {key: named[key] for key in ("policy", "policy_id", "name")}
    sums = asdict(totals_of(found))
    priced = {} if seconds is None else asdict(seconds)
    return identity | {"settings": json.dumps(named["settings"], sort_keys=True)} | sums | priced


def shared_columns(trace: "Trace", draft: str, recorded: "RecordedSequence", prices: Prices) -> dict[str, object]:
    """The columns that all rows of a sequence share."""
    prompt = recorded.prompt
    return {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        "cost_id": prices.cost_id,
        "sequence": recorded.index,
        "prompt_id": prompt.prompt_id,
        "dataset": prompt.dataset,
        "turn": prompt.turn,
        "sample": prompt.sample,
        "context_length": len(prompt.token_ids),
        "stop_reason": recorded.stop_reason,
        "kind": "predicted",
        "simlab_version": metadata.version("simlab"),
    }


def first_prompts(trace: "Trace", limit: int | None) -> list[int]:
    """Indices of the sequences of the first prompts; turns and samples of a prompt stay together."""
    prompts: dict[tuple[str, str], None] = {}
    wanted = []
    for record in trace.sequences():
        key = (record.prompt.dataset, record.prompt.prompt_id)
        if limit is None or key in prompts or len(prompts) < limit:
            prompts[key] = None
            wanted.append(record.index)
    return wanted


def _with_progress(
    trace: "Trace", draft: str, limit: int | None, progress: bool | None
) -> "Iterator[RecordedSequence]":
    from tqdm import tqdm

    wanted = first_prompts(trace, limit)
    shown = sys.stderr.isatty() if progress is None else progress
    found = trace.recorded(draft, wanted)
    yield from tqdm(found, total=len(wanted), desc="replay", unit="sequence", delay=2, disable=not shown)


def heading(trace: "Trace", draft: str, rows: Sequence[dict[str, object]], prices: Prices) -> str:
    """What was replayed: trace, target, drafter, how much, and at which prices."""
    manifest = trace.manifest
    sampling, kept = manifest.sampling, manifest.draft_sets[draft]
    sequences = {row["sequence"] for row in rows}
    texts = [record for record in trace.sequences() if record.index in sequences]
    prompts = {(record.prompt.dataset, record.prompt.prompt_id) for record in texts}
    made = "generated by the target" if manifest.gt_mode == "generated" else "made elsewhere"
    lines = {
        "trace": f"{trace.place} (text {trace.text_id})",
        "target": f"{manifest.target.name}, {manifest.dtype}, temperature {sampling.temperature:g}",
        "drafter": f"{draft}, block {kept.block_size} ({kept.depth} drafted ahead)",
        "text": f"{len(prompts)} prompts, {len(texts)} sequences, "
        f"{sum(len(record.text) for record in texts):,} tokens, {made}",
        "prices": prices.heading,
    }
    return "\n".join(f"{name.ljust(8)} {value}" for name, value in lines.items())


def _run(options: argparse.Namespace) -> int:
    from simlab.traces.reader import open_trace, packaged_trace
    from simlab.traces.results import write_results

    policies = with_references(options.policy or _WITHOUT_CHOICE)
    _check_out(options.out)
    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = _draft_name(trace, options.draft)
    prices = replay_prices(options.cost, trace, draft, policies, options.limit)
    rows = replay_trace(trace, draft, policies, options.limit, options.progress, prices)
    if not rows:
        raise TraceError(f"{trace.place} holds no sequences, so there is nothing to replay")
    if options.out is not None:
        write_results(options.out, rows)
    if options.json:
        print(json_text(trace, draft, rows, options.by, prices))
    else:
        print(f"{heading(trace, draft, rows, prices)}\n\n{table_text(rows, prices, options.by)}")
        if options.out is not None:
            print(f"Result rows: {options.out}")
    return 0


def json_text(trace: "Trace", draft: str, rows: Sequence[dict[str, object]], by: str | None, prices: Prices) -> str:
    """The summaries for scripts; with ``by`` only those of the slices, which add up to the whole."""
    from simlab.analysis.tables import summaries
    from simlab.traces.results import results_frame

    found = summaries(results_frame(rows), by)
    ids = {draft: trace.draft_ids[draft]}
    value = {"text_id": trace.text_id, "draft_ids": ids, "cost": prices.cost_id, "rows": [one.row() for one in found]}
    return json.dumps(value, indent=1, allow_nan=False)


def table_text(rows: Sequence[dict[str, object]], prices: Prices, by: str | None = None) -> str:
    """The summaries for people, and what to know beside them."""
    from simlab.analysis.table_text import blocks, notes, table
    from simlab.analysis.tables import summaries
    from simlab.traces.results import results_frame

    results = results_frame(rows)
    whole = summaries(results)
    if by is None:
        return f"{table(whole)}\n\n{notes(whole, prices.why_none)}"
    slices = summaries(results, by)
    return f"{blocks(slices, whole, by)}\n\n{notes(slices, prices.why_none)}"


def _draft_name(trace: "Trace", name: str | None) -> str:
    names = list(trace.manifest.draft_sets)
    if name is None and len(names) > 1:
        raise UsageError(f"{trace.place} holds the draft sets {', '.join(names)}; choose one with --draft NAME")
    return trace.draft_name(name)


def _check_out(out: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"--out names the folder {out}; expected a file, such as {out / 'results.parquet'}")
    out.parent.mkdir(parents=True, exist_ok=True)
