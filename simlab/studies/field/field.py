"""The field, from beginning to end: record, time, choose on dev prompts, predict, compose, confirm, one table."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import polars as pl

from simlab.analysis.confirm.table import FAILED
from simlab.errors import PromptError, UsageError
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.profile.machine import plain_token_seconds
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.record.prompts import read_prompts
from simlab.studies.confirm.confirm import confirm
from simlab.studies.field.choice import Entry, choose
from simlab.studies.field.folder import STEPS, FieldFolder, open_folder
from simlab.studies.field.models import CHANNEL, FieldModels, packaged_models, read_models
from simlab.studies.field.result import FieldResult
from simlab.studies.field.rows import FieldRows, bound_rows, field_rows, sources
from simlab.studies.field.sizes import FieldSize, expected_seconds, sized
from simlab.studies.field.systems import COMPOSED, COMPOSITION, EQUAL, FASTEST, SYSTEMS
from simlab.studies.inputs.progress import announce
from simlab.studies.optimize.optimize import optimize
from simlab.studies.profile import profile
from simlab.studies.record import add_channel, add_draft, record
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.confirmation import read_confirmation
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.format.alone import writing_alone
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import write_beside
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results, write_results

DEV, EVALUATION = "dev", "eval"
GPU_LIKE = "tile=64"
"""A pass of up to 64 tokens takes as long as one of 64, autoregressive decoding's too."""

_DATA = Path(str(files("simlab"))) / "data"
_PROMPTS = {DEV: _DATA / "field_dev_prompts.jsonl", EVALUATION: _DATA / "field_prompts.jsonl"}


@dataclass(frozen=True, slots=True)
class _Field:
    """What all steps share."""

    folder: FieldFolder
    models: FieldModels
    size: FieldSize
    prompts: Mapping[str, Path]
    limits: Mapping[str, int]
    more: bool

    def path(self, name: str) -> Path:
        return self.folder.path / name

    def trace(self, side: str) -> Trace:
        return open_trace(self.path(side))


def field(
    out: str | Path = "runs/field",
    *,
    quick: bool = False,
    models: str | Path | None = None,
    add_drafts: Mapping[str, str] | None = None,
    dev: str | Path | None = None,
    prompts: str | Path | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    execution: str = EAGER,
    confirm_minutes: float | None = None,
) -> FieldResult:
    """Hold every system of the field side by side: the same target, prompts and machine.

    Each step is announced on standard error, with about how long all of them take, and what an earlier run finished is
    taken as it is. All figures are in ``out/field.json`` when this returns.

    Args:
        out: where recordings, latency profiles, choices, result rows and runs are kept.
        quick: few prompts, short answers and brief measurements: to see that all goes through, not to report.
        models: a JSON file that names target, drafters and channels; None: those that come with simlab.
        add_drafts: checkpoints of further draft sets, by name: ``{"self": "runs/self"}``.
        dev: prompts that settings are chosen on; None: forty that come with simlab.
        prompts: prompts that are reported; None: sixteen each of GSM8K, MBPP, HumanEval and MT-bench.
        dtype: of the models' arithmetic.
        device: as torch names it.
        execution: how passes are started: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        confirm_minutes: of all runs of the real models together; None: as the size of the field has it. Given for a
            field that is finished, so many minutes more. 0: nothing is run, and nothing measured is in the table but
            what earlier runs left.

    Raises:
        SimlabError: models, prompts or folder cannot be used; what was finished stays.
    """
    named = packaged_models if models is None else partial(read_models, Path(models))
    taken = named(dtype, device, execution).with_drafts(add_drafts or {})
    known = dict.fromkeys(one.drafter for one in SYSTEMS)
    unread = [name for name in taken.drafters if name not in known]
    if unread:
        raise UsageError(f"no system reads a draft set {unread[0]}; they are called {', '.join(known)}")
    size = sized(quick, confirm_minutes)
    asked = {
        DEV: _PROMPTS[DEV] if dev is None else Path(dev),
        EVALUATION: _PROMPTS[EVALUATION] if prompts is None else Path(prompts),
    }
    limits = {DEV: size.dev_prompts, EVALUATION: size.prompts}
    wanted = {
        "models": asdict(taken),
        # The minutes of runs may be asked for anew.
        "size": {key: value for key, value in asdict(size).items() if key != "confirm_minutes"},
        "prompts": {side: _digest(path) for side, path in asked.items()},
    }
    with writing_alone(Path(out) / STEPS):
        folder = open_folder(Path(out), wanted)
        return _made(_Field(folder, taken, size, asked, limits, confirm_minutes is not None))


def _made(here: _Field) -> FieldResult:
    """Go through all steps, and write the table."""
    _foretell(here)
    for side in (EVALUATION, DEV):
        _record(here, side)
    for drafter in here.models.drafters:
        _profile(here, drafter)
    entries, left_out = _entries(here)
    drafters = list(dict.fromkeys(one.drafter for one in entries))
    rows = {drafter: _rows(here, drafter, entries) for drafter in drafters}
    ran = [(drafter, group) for drafter in drafters for group in _groups(entries, drafter)]
    confirmations = [_confirmation(here, *one) for one in ran if _has_run(here, *one)]
    result = FieldResult(
        facts={**_facts(here, confirmations), "systems": sources(entries)},
        rows=field_rows(entries, rows),
        bounds=[row for one in rows.values() for row in bound_rows(one)],
        left_out=left_out,
        seconds=dict(here.folder.seconds),
        has_failed=any(bool(one["has_failed"]) for one in confirmations),
    )
    result.write(here.path("field.json"))
    return result


def _digest(prompts: Path) -> str:
    """What a file of prompts holds, sha256.

    Raises:
        PromptError: it cannot be read.
    """
    try:
        return hashlib.sha256(prompts.read_bytes()).hexdigest()
    except OSError as error:
        raise PromptError(f"{prompts} cannot be read: {error}; give a file of prompts, JSON lines") from error


def _foretell(here: _Field) -> None:
    """Say about how long what is left takes, from a few tokens of the target on this machine."""
    done = here.folder.seconds
    have_run = all(any(step.startswith(f"confirm {drafter} ") for step in done) for drafter in here.models.drafters)
    if "choose" in done and (not here.size.confirm_minutes or (have_run and not here.more)):
        return
    token_s = plain_token_seconds(here.models.target, here.models.dtype, here.models.device)
    texts = {
        side: sum(1 + len(one.later_turns) for one in read_prompts(path, here.limits[side]))
        for side, path in here.prompts.items()
    }
    expected = expected_seconds(here.size, here.models, token_s, texts)
    left = {step: seconds for step, seconds in expected.items() if step not in done}
    minutes = sum(left.values()) / 60
    announce(
        f"The field takes about {minutes + here.size.confirm_minutes:.0f} minutes here, of which "
        f"{here.size.confirm_minutes:g} are runs of the real models, and ends sooner where they have no prompts left. "
        f"Interrupted, the same command goes on from what is in {here.folder.path}. Leave the machine alone meanwhile: "
        "other work on it is measured too."
    )


def _record(here: _Field, side: str) -> None:
    """Record the prompts of a side with the first drafter; then every other draft set and channel."""
    models, path = here.models, here.path(side)
    here.folder.once(
        f"record {side}",
        f"Recording the {side} prompts with {models.drafters[models.first]}",
        lambda: record(
            models.target,
            models.drafters[models.first],
            out=path,
            prompts=here.prompts[side],
            limit=here.limits[side],
            max_new_tokens=here.size.max_new_tokens,
            dtype=models.dtype,
            device=models.device,
            resume=path.exists(),
        ),
    )
    for kind, name in models.additions:
        add = partial(_add_channel if kind == CHANNEL else _add_draft, here, path, name)
        here.folder.once(f"add {kind} {name} {side}", f"Adding the {kind} {name} to the {side} prompts", add)


def _add_draft(here: _Field, path: Path, name: str) -> None:
    if name not in open_trace(path).manifest.draft_sets:
        resume = (path / "unfinished").exists()
        add_draft(path, name, here.models.drafters[name], device=here.models.device, resume=resume)


def _add_channel(here: _Field, path: Path, name: str) -> None:
    one = here.models.channels[name]
    if name in open_trace(path).manifest.channels:
        return
    add_channel(
        path,
        name,
        one.checkpoint,
        one.settings,
        draft_set=one.drafter,
        dtype=here.models.dtype,
        device=here.models.device,
        resume=(path / "unfinished" / f"channel-{name}.json").exists(),
    )


def _cost(here: _Field, drafter: str) -> Path:
    return here.path(f"cost-{drafter}.json")


def _profile(here: _Field, drafter: str) -> None:
    """Time rounds of a drafter, and what its channels and a late reading take."""
    models, size, out = here.models, here.size, _cost(here, drafter)
    channels = {
        name: ProfileChannel(one.checkpoint, dict(one.settings), one.units or None)
        for name, one in models.channels_of(drafter).items()
    }
    here.folder.once(
        f"profile {drafter}",
        f"Timing rounds of {models.drafters[drafter]}",
        lambda: profile(
            models.target,
            models.drafters[drafter],
            out=out,
            node_counts=(0, *size.node_counts),
            contexts=size.contexts,
            repeats=size.repeats,
            dtype=models.dtype,
            device=models.device,
            execution=models.execution,
            channels=channels,
            catch_up=size.catch_up if drafter == models.first else None,
            resume=out.exists(),
        ),
    )


def _entries(here: _Field) -> tuple[list[Entry], dict[str, str]]:
    """What every system runs, chosen on the dev prompts, and at last the best composition."""
    path = here.path("chosen.json")

    def work() -> None:
        entries: list[Entry] = []
        left_out: dict[str, str] = {}
        for drafter in here.models.drafters:
            found, without = choose(here.trace(DEV), drafter, _cost(here, drafter))
            entries += [*found, *_composed(here, drafter)]
            left_out |= without
        text = json.dumps({"entries": [asdict(one) for one in entries], "left_out": left_out}, indent=1) + "\n"
        write_beside(path, lambda file: file.write(text.encode()))

    here.folder.once("choose", "Choosing settings on the dev prompts", work)
    found = json_fields(path.read_bytes(), str(path))
    entries = [
        Entry(
            system=one.text("system"),
            size=one.text("size"),
            drafter=one.text("drafter"),
            policy=one.text("policy"),
            chosen_from=one.integer("chosen_from"),
        )
        for one in found.objects("entries")
    ]
    return entries, found.texts("left_out")


def _composed(here: _Field, drafter: str) -> Iterator[Entry]:
    """The fastest composition on the dev prompts; its search is kept beside, with its report on the other prompts."""
    if drafter not in COMPOSED:
        return
    search = optimize(
        here.trace(DEV),
        COMPOSED[drafter],
        report_on=here.trace(EVALUATION),
        cost=_cost(here, drafter),
        draft=drafter,
        progress=False,
    )
    search.write(here.path(f"composition-{drafter}.json"))
    yield Entry(COMPOSITION, FASTEST, drafter, search.optimum.best.policy, search.optimum.searched)


def _rows(here: _Field, drafter: str, entries: Sequence[Entry]) -> FieldRows:
    """Replay and run the policies of a draft set on the prompts that are reported."""
    own = [one for one in entries if one.drafter == drafter]
    out = here.path(f"predicted-{drafter}.parquet")

    def predict() -> None:
        policies = list(dict.fromkeys(one.policy for one in own))
        cost, trace = _cost(here, drafter), here.trace(EVALUATION)
        table = replay(trace, policies, cost=cost, what_if=[GPU_LIKE], draft=drafter, progress=False)
        write_results(out, table.rows, trace.sequence_counts)

    here.folder.once(f"predict {drafter}", f"Replaying the policies of {drafter} on the prompts of the report", predict)
    predicted = read_results(out)
    hypothetical = pl.col("cost_id").str.starts_with("what-if")
    ran = {group: _measured(here, drafter, group, entries) for group in _groups(entries, drafter)}
    none = predicted.clear()
    measured = {group: none if rows is None else rows for group, rows in ran.items()}
    return FieldRows(drafter, predicted.filter(~hypothetical), predicted.filter(hypothetical), measured)


def _measured(here: _Field, drafter: str, group: str, entries: Sequence[Entry]) -> pl.DataFrame | None:
    """Run policies of a draft set together on the real models; None where nothing ran, now or earlier.

    Time is shared out by the number of policies within a group, and among groups as the size of the field has it.
    """
    together = [one for one in entries if one.group == group]
    policies = list(dict.fromkeys(one.policy for one in together if one.drafter == drafter))
    share = len(policies) / len({(one.drafter, one.policy) for one in together})
    minutes = here.size.confirm_minutes * share * here.size.share_of(group)
    out = _runs(here, drafter, group)
    if minutes:
        here.folder.once(
            f"confirm {drafter} {group}",
            f"Running {len(policies)} policies of {drafter} on the real models for {minutes:.0f} minutes at most",
            lambda: confirm(
                here.trace(EVALUATION),
                policies,
                cost=_cost(here, drafter),
                target=here.models.target,
                draft=here.models.drafters[drafter],
                dtype=here.models.dtype,
                device=here.models.device,
                execution=here.models.execution,
                repeats=1,
                time_limit=minutes,
                out=out,
                resume=out.exists(),
            ),
            again=here.more,
        )
    if not _has_run(here, drafter, group):
        return None
    rows = read_results(out / "results.parquet")
    return rows.filter(pl.col("kind") == "measured")


def _groups(entries: Sequence[Entry], drafter: str) -> list[str]:
    """What runs together of a draft set, in turn."""
    own = {one.group for one in entries if one.drafter == drafter}
    return [group for group in (FASTEST, EQUAL) if group in own]


def _runs(here: _Field, drafter: str, group: str) -> Path:
    return here.path(f"confirm-{drafter}-{group}")


def _has_run(here: _Field, drafter: str, group: str) -> bool:
    """Whether an earlier run came to its end, or this one did."""
    return (_runs(here, drafter, group) / "confirm.json").is_file()


def _confirmation(here: _Field, drafter: str, group: str) -> Mapping[str, object]:
    """What the runs of a draft set were judged to be."""
    found = read_confirmation(_runs(here, drafter, group) / "confirm.json")
    judged = [one for one in found.rows if one.get("lossless") is not None]
    return {
        "drafter": drafter,
        "group": group,
        "prediction": found.prediction,
        "policies": len(judged),
        "prompts": found.ran["prompts"],
        "texts": sum(int(str(one["num_texts"])) for one in judged),
        "same_texts": sum(int(str(one["num_same_texts"])) for one in judged),
        "rounds_equal_replay": all(one["counts_equal_replay"] for one in judged),
        "has_failed": any(one["lossless"] == FAILED or not one["counts_equal_replay"] for one in judged),
        "ended": found.ran["ended"],
        "versions": found.ran["versions"],
    }


def _facts(here: _Field, confirmations: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What the figures are of."""
    trace = here.trace(EVALUATION)
    datasets: dict[str, set[str]] = {}
    for one in trace.sequences():
        datasets.setdefault(one.prompt.dataset, set()).add(one.prompt.prompt_id)
    return {
        "models": asdict(here.models),
        "size": asdict(here.size),
        "prompts": {name: len(ids) for name, ids in datasets.items()},
        "text_id": trace.text_id,
        "gpu_like": GPU_LIKE,
        "costs": {drafter: read_cost_file(_cost(here, drafter)).device for drafter in here.models.drafters},
        "confirmations": confirmations,
    }
