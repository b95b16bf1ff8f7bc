"""The part of the demo that runs models: profile, record, choose on dev prompts, confirm on fresh ones."""

from importlib.resources import files
from pathlib import Path

from simlab.errors import UsageError
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.profile.machine import has_fast_bfloat16
from simlab.real_runner.targets.token_text import load_decoder
from simlab.studies.confirm.choice import prior_choice
from simlab.studies.confirm.confirmation import Confirmation, SummaryContext
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import TraceArtefacts, with_references
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.progress import announce
from simlab.studies.optimize.optimize import OptimizeResult, optimize
from simlab.studies.profile.profile import ProfileTable, profile
from simlab.studies.record import record
from simlab.studies.replay.replay import replay
from simlab.studies.show_round import most_telling_round, round_text
from simlab.traces.artefacts.optimum import Optimum
from simlab.traces.format.files import write_beside
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import write_results
from simlab.untrusted.json_text import file_text

SEARCHED = ("chain:length=3/5", "presto:budget=4/6/8/12/16/24", "caddtree:budget=48", "price:budget=48")
"""Among these, the whole chain and `ddtree` of every budget the demo chooses on the dev prompts."""

NUM_RUN = 2
"""So many of the best run on the real models, beside plain decoding and the chain."""

MAX_NEW_TOKENS = 96
_DATA = Path(str(files("simlab"))) / "data"
DEV, FRESH = _DATA / "demo_dev_prompts.jsonl", _DATA / "demo_prompts.jsonl"
_CONTEXTS, _NODE_COUNTS, _REPEATS = (64, 256), (0, 3, 5, 7, 8, 12, 16, 24, 32, 48), 15


def live_parts(
    out: Path, target: str, draft: str, prompts: Path | None = None
) -> tuple[list[tuple[str, str]], tuple[Path, ...], bool]:
    """Run everything; parts that an earlier run finished are used again.

    Args:
        out: where all files go.
        target: a name, folder or Hub id.
        draft: a name, folder, file of weights or Hub id.
        prompts: a file, every second prompt of which is chosen on and the others confirmed on; None: packaged ones.

    Returns:
        Titles and texts, the verdict first; the latency profile, both recordings, the choice and the confirmation;
        and whether a text is not the target's, or rounds are not those of their replay.
    """
    dtype = "bfloat16" if has_fast_bfloat16() else "float32"
    cost, optimum = out / "cost.json", out / "optimize.json"
    costs = _profiled(cost, target, draft, dtype)
    dev_prompts, fresh_prompts = (DEV, FRESH) if prompts is None else _halves(prompts, out)
    dev = _recorded("3/7  Dev prompts are recorded", out / "dev", dev_prompts, target, draft, dtype)
    fresh = _recorded("4/7  Fresh prompts are recorded", out / "fresh", fresh_prompts, target, draft, dtype)
    search = _chosen(optimum, dev, fresh, cost)
    confirmation = _confirmed(out / "confirm", target, draft, dtype, fresh, cost, optimum, search.optimum)
    parts = [
        (f"Verdict, on {_prompts_of(fresh)} fresh prompts", confirmation.text()),
        ("The latency profile of this machine, measured briefly", costs.text()),
        (f"The choice, on {_prompts_of(dev)} dev prompts", f"{search.text()}\nChoice: {optimum}"),
        ("One round of the fresh recording", _round_text(fresh, target)),
    ]
    return parts, (cost, out / "dev", out / "fresh", optimum, out / "confirm"), confirmation.has_failed


def _prompts_of(trace: Trace) -> int:
    return len({(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in trace.sequences()})


def _halves(prompts: Path, out: Path) -> tuple[Path, Path]:
    """Every second line of a prompt file, and the others, each in a file of its own."""
    try:
        lines = [line for line in file_text(prompts).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{prompts} cannot be read ({error}); expected a file of prompts, JSON lines") from error
    if len(lines) < 4:
        raise UsageError(f"{prompts} has {len(lines)} prompts; expected four or more, half of them to choose on")
    files = out / "dev.jsonl", out / "fresh.jsonl"
    for path, half in zip(files, (lines[::2], lines[1::2]), strict=True):
        text = "".join(f"{line}\n" for line in half)
        write_beside(path, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    return files


def _profiled(path: Path, target: str, draft: str, dtype: str) -> ProfileTable:
    """Measure briefly what rounds cost."""
    announce("2/7  A latency profile of this machine is measured")
    return profile(
        target,
        draft,
        out=path,
        node_counts=_NODE_COUNTS,
        contexts=_CONTEXTS,
        repeats=_REPEATS,
        dtype=dtype,
        resume=path.exists(),
    )


def _recorded(title: str, folder: Path, prompts: Path, target: str, draft: str, dtype: str) -> Trace:
    """Record prompts, or open what was recorded before."""
    announce(title)
    if (folder / "manifest.json").is_file():
        return open_trace(folder)
    return record(
        target,
        draft,
        out=folder,
        prompts=prompts,
        max_new_tokens=MAX_NEW_TOKENS,
        dtype=dtype,
        resume=folder.exists(),
    )


def _chosen(path: Path, dev: Trace, fresh: Trace, cost: Path) -> OptimizeResult:
    """Choose the policy that is predicted to be fastest on one trace, and see how it and every budget do on another."""
    announce("5/7  Policies are searched on the dev prompts, and the best is compared with others on the fresh ones")
    search = optimize(fresh, SEARCHED, dev_trace=dev, cost=cost, progress=False)
    search.write(path)
    budgets = replay(fresh, [f"ddtree:budget=1..{_NODE_COUNTS[-1]}"], cost=cost, progress=False)
    write_results(path.with_name("budgets.parquet"), budgets.rows, fresh.sequence_counts)
    return search


def _confirmed(
    out: Path, target: str, draft: str, dtype: str, fresh: Trace, cost: Path, path: Path, optimum: Optimum
) -> Confirmation:
    """Run the best of the search, and compare it with its prediction."""
    announce(f"6/7  {optimum.best.policy} runs on the fresh prompts, beside autoregressive decoding and others")
    options = ConfirmOptions(out, target, draft, dtype, resume=out.exists())
    name = fresh.draft_name()
    policies = with_references(optimum.run[:NUM_RUN], TraceArtefacts(prices_for_trace(cost, fresh, name), fresh, name))
    choice = prior_choice(path, optimum, fresh.sequences(), policies)
    return run_confirmation(options, fresh, policies, cost, SummaryContext(chosen=choice))


def _round_text(trace: Trace, target: str) -> str:
    """Show the round in which a tree gained most over the chain."""
    shown = most_telling_round(trace.recorded(trace.draft_name()))
    if shown is None:
        return "In this recording the tree never accepted more than the chain, so there is no round to show."
    return round_text(*shown, decode=load_decoder(target))
