"""The part of the demo that runs models: profile, record, choose on dev prompts, confirm on fresh ones."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cli.demo import printed, says
from simlab.cli.demo_round import most_telling_round, round_text
from simlab.cli.profile import reading_text
from simlab.cli.profile_text import profile_text
from simlab.errors import needing_models
from simlab.studies.confirm.chosen import chosen_of
from simlab.studies.confirm.run import confirm
from simlab.studies.inputs.asked import replay_prices, with_references
from simlab.studies.inputs.shelf import CommandShelf

if TYPE_CHECKING:
    from simlab.traces.artefacts.optimum import Optimum
    from simlab.traces.reader import Trace

SEARCHED = ("chain:length=3/5", "presto:budget=4/6/8/12/16/24", "caddtree:budget=48", "price:budget=48")
"""Among these, the whole chain and `ddtree` of every budget the demo chooses on the dev prompts."""

NUM_RUN = 2
"""So many of the best run on the real models, beside plain decoding and the chain."""

MAX_NEW_TOKENS = 96
_DATA = Path(str(files("simlab"))) / "data"
DEV, FRESH = _DATA / "demo_dev_prompts.jsonl", _DATA / "demo_prompts.jsonl"
_CONTEXTS, _NODE_COUNTS, _REPEATS = (64, 128, 256), (0, 3, 5, 7, 8, 12, 16, 24, 32, 48), 4


@dataclass(frozen=True, slots=True)
class Story:
    """Titled parts of what is printed: the verdict, and what led to it; and the files that were made.

    Attributes:
        report: arguments of `simlab report`, paths from where all files are.
    """

    first: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]
    report: tuple[str, ...]
    has_failed: bool


def live_story(out: Path, target: str, draft: str) -> Story:
    """Run everything; parts that an earlier run finished are used again.

    Raises:
        SimlabError: the models cannot be had, or what is in ``out`` is of other ones.
    """
    with needing_models("demo"):
        from simlab.real_runner.confirm.options import ConfirmOptions
        from simlab.real_runner.profile.machine import has_fast_bfloat16

    dtype = "bfloat16" if has_fast_bfloat16() else "float32"
    cost, costs_text = _profiled(out / "cost.json", target, draft, dtype)
    _recorded("3/7  Eight dev prompts are recorded", out / "dev", DEV, target, draft, dtype)
    fresh = _recorded("4/7  Eight fresh prompts are recorded", out / "fresh", FRESH, target, draft, dtype)
    says("5/7  Policies are searched on the dev prompts, and the best is held against others on the fresh ones")
    chosen, chosen_text = _chosen(out / "optimize.json", out / "dev", out / "fresh", cost)
    says(f"6/7  {chosen.best.policy} runs on the fresh prompts, beside plain decoding and others")
    options = ConfirmOptions(out / "confirm", target, draft, dtype, resume=(out / "confirm").exists())
    shelf = CommandShelf(replay_prices(cost, fresh, fresh.draft_name(), [], None), fresh, fresh.draft_name())
    policies = with_references(chosen.run[:NUM_RUN], shelf)
    beforehand = chosen_of(out / "optimize.json", chosen, fresh.sequences(), policies)
    done = confirm(options, fresh, policies, cost, chosen=beforehand)
    return Story(
        first=(("Verdict, on eight fresh prompts", done.text()),),
        others=(
            ("What rounds cost on this machine, measured briefly", costs_text),
            ("The choice, on eight dev prompts", chosen_text),
            ("One round of the fresh recording", _round_text(fresh, target)),
        ),
        files=(cost, out / "dev", out / "fresh", out / "optimize.json", out / "confirm"),
        report=("confirm", "budgets.parquet", "--trace", "fresh", "--cost", "cost.json", "--optimum", "optimize.json"),
        has_failed=done.has_failed,
    )


def _profiled(path: Path, target: str, draft: str, dtype: str) -> tuple[Path, str]:
    from simlab.real_runner.profile.options import ProfileOptions
    from simlab.real_runner.profile.profile import profile
    from simlab.traces.artefacts.cost import read_cost_file

    says("2/7  What rounds cost on this machine is measured")
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
    from simlab.real_runner.record.options import RecordOptions
    from simlab.real_runner.record.record import record
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


def _chosen(path: Path, dev: Path, fresh: Path, cost: Path) -> "tuple[Optimum, str]":
    """The policy that is predicted to be fastest on one trace, and how it does on another."""
    from simlab.traces.artefacts.optimum import read_optimum

    entries = [word for one in SEARCHED for word in ("-p", one)]
    where = ("--trace", str(dev), "--report-on", str(fresh), "--cost", str(cost), "--out", str(path))
    text = printed("optimize", *where, *entries, "--no-progress")
    budgets = ("-p", f"ddtree:budget=1..{_NODE_COUNTS[-1]}", "--no-progress")
    rows = path.with_name("budgets.parquet")
    rows.unlink(missing_ok=True)
    printed("replay", "--trace", str(fresh), "--cost", str(cost), *budgets, "--out", str(rows))
    return read_optimum(path), text


def _round_text(trace: "Trace", target: str) -> str:
    from simlab.real_runner.targets.token_text import load_decoder

    found = most_telling_round(trace.recorded(trace.draft_name()))
    if found is None:
        return "In this recording the tree never accepted more than the chain, so there is no round to show."
    return round_text(*found, decode=load_decoder(target))
