"""The part of the demo that runs models: profile, record, choose on dev prompts, confirm on fresh ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.command_confirm_run import confirm
from simlab.command_demo import says
from simlab.command_demo_round import most_telling_round, round_text
from simlab.command_line import needing_models
from simlab.command_profile import reading_text
from simlab.command_profile_text import profile_text
from simlab.command_replay import asked_for, with_references
from simlab.command_replay_run import replay_trace
from simlab.command_replay_text import heading, table_text

if TYPE_CHECKING:
    from simlab.policies.spec import NamedPolicy
    from simlab.traces.reader import Trace

CHOICES = ("chain:length=3/5", "ddtree:budget=4/6/8/12/16/24/32/48")
"""Among these, and the whole chain, the demo picks on the dev prompts."""

MAX_NEW_TOKENS = 96
_DATA = Path(__file__).parent / "data"
DEV, FRESH = _DATA / "demo_dev_prompts.jsonl", _DATA / "demo_prompts.jsonl"
_CONTEXTS, _NODE_COUNTS, _REPEATS = (64, 128, 256), (0, 3, 5, 7, 8, 12, 16, 24, 32, 48), 4


@dataclass(frozen=True, slots=True)
class Story:
    """Titled parts of the report: the verdict, and what led to it; and the files that were made."""

    first: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]
    has_failed: bool


def live_story(out: Path, target: str, draft: str) -> Story:
    """Run everything; parts that an earlier run finished are used again.

    Raises:
        SimlabError: the models cannot be had, or what is in ``out`` is of other ones.
    """
    with needing_models("demo"):
        from simlab.real_runner.confirm_options import ConfirmOptions
        from simlab.real_runner.machine import has_fast_bfloat16

    dtype = "bfloat16" if has_fast_bfloat16() else "float32"
    cost, costs_text = _profiled(out / "cost.json", target, draft, dtype)
    dev = _recorded("3/6  Eight dev prompts are recorded", out / "dev", DEV, target, draft, dtype)
    says("4/6  The policy that is predicted to be fastest is picked on them")
    winner, dev_text = _picked(dev, cost)
    fresh = _recorded("5/6  Eight fresh prompts are recorded", out / "fresh", FRESH, target, draft, dtype)
    says(f"6/6  {winner.label} runs on the fresh prompts, beside plain decoding and the chain")
    options = ConfirmOptions(out / "confirm", target, draft, dtype, resume=(out / "confirm").exists())
    done = confirm(options, fresh, with_references([winner.label]), cost)
    chosen = f"Chosen on the dev prompts by predicted speed among {', '.join(CHOICES)} and the whole chain."
    return Story(
        first=(("Verdict, on eight fresh prompts", f"{done.text()}\n\n{chosen}"),),
        others=(
            ("What rounds cost on this machine, measured briefly", costs_text),
            ("The choice, on eight dev prompts", dev_text),
            ("One round of the fresh recording", _round_text(fresh, target)),
        ),
        files=(cost, out / "dev", out / "fresh", out / "confirm"),
        has_failed=done.has_failed,
    )


def _profiled(path: Path, target: str, draft: str, dtype: str) -> tuple[Path, str]:
    from simlab.real_runner.profile import profile
    from simlab.real_runner.profile_options import ProfileOptions
    from simlab.traces.cost_file import read_cost_file

    says("2/6  What rounds cost on this machine is measured")
    options = ProfileOptions(
        target=target,
        draft=draft,
        out=path,
        text=reading_text(),
        node_counts=_NODE_COUNTS,
        contexts=_CONTEXTS,
        repeats=_REPEATS,
        dtype=dtype,
        resume=path.exists(),
    )
    profile(options)
    return path, profile_text(path, read_cost_file(path))


def _recorded(title: str, folder: Path, prompts: Path, target: str, draft: str, dtype: str) -> "Trace":
    from simlab.real_runner.options import RecordOptions
    from simlab.real_runner.record import record
    from simlab.traces.reader import open_trace

    says(title)
    if not (folder / "manifest.json").is_file():
        options = RecordOptions(
            target=target,
            draft=draft,
            prompts=prompts,
            out=folder,
            max_new_tokens=MAX_NEW_TOKENS,
            dtype=dtype,
            resume=folder.exists(),
        )
        record(options)
    return open_trace(folder)


def _picked(trace: "Trace", cost: Path) -> "tuple[NamedPolicy, str]":
    """The policy that is predicted to be fastest on a trace, and the table that says so."""
    from simlab.analysis.tables import summaries

    draft = trace.draft_name()
    (asked,) = asked_for(CHOICES, (cost,), trace, draft)
    rows, prices = replay_trace(trace, draft, [asked], None), asked.prices
    speeds = {one.policy_id: one.speed.tokens_per_s for one in summaries(rows)}
    winner = max((one for one in asked.policies if one.policy.needs.draft), key=lambda one: speeds[one.policy_id])
    return winner, f"{heading(trace, draft, rows, prices)}\n\n{table_text(rows, prices)}\n\nPicked: {winner.label}"


def _round_text(trace: "Trace", target: str) -> str:
    from simlab.real_runner.token_text import load_decoder

    found = most_telling_round(trace.recorded(trace.draft_name()))
    if found is None:
        return "In this recording the tree never accepted more than the chain, so there is no round to show."
    return round_text(*found, decode=load_decoder(target))
