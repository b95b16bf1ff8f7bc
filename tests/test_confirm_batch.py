"""``simlab confirm --batch N``: groups served on tiny random models, against single texts and a plain-Python server."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import confirm_runs
import numpy as np
import polars as pl
import pytest
import random_trees
from confirm_runs import LABELS, Made, confirmed, make
from lossless_checks import assert_same_rounds
from made_up_costs import filled

from simlab.command_confirm_result import Confirmation
from simlab.cost import STAGES, CostTable, StageSeconds
from simlab.draft import Draft, Prompt
from simlab.errors import CostError, ModelError, TraceError
from simlab.main import main
from simlab.policies.autoregressive import Autoregressive
from simlab.policies.best_first import DDTree
from simlab.policies.chain import LONGEST_BLOCK, Chain
from simlab.policies.composition import Composition
from simlab.policies.joint_budget import JointBudget, select_together
from simlab.policy import AnyPolicy
from simlab.real_runner import batched_buffers, batched_speculation, confirm_audit, confirm_batch
from simlab.real_runner.batched_speculation import BatchedSpeculation
from simlab.real_runner.confirm_batch_check import first_unequal_of_each
from simlab.real_runner.confirm_batch_groups import groups_of, units_of
from simlab.real_runner.confirm_batch_serving import ServedGroup, serve_group
from simlab.real_runner.confirm_log import LOG
from simlab.real_runner.confirm_options import ConfirmOptions
from simlab.real_runner.decode import decode
from simlab.real_runner.decoded import Decoded, RanRound
from simlab.real_runner.models import Models
from simlab.real_runner.profile_key import setting_of
from simlab.recorded import RecordedSequence
from simlab.replay import rounds
from simlab.sampling import Sampling
from simlab.traces.cost_file import CostFile, write_cost_file
from simlab.traces.records import SequenceRecord
from simlab.traces.results import read_results
from simlab.tree import DraftTree

GREEDY, WARM = Sampling(0.0, 0, 1.0, 0), Sampling(1.1, 6, 0.9, 3)
VOCAB_SIZE, MOST, BATCH = 12, 18, 3
POLICIES: tuple[AnyPolicy, ...] = (Autoregressive(), Chain(3), DDTree(7), JointBudget(9))


class SlowingClock:
    """Each look at it takes longer than the one before, so that no two rounds take equally long."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks**2)


def round_seconds(number: int) -> float:
    """Of a round of the batch, which looks five times."""
    return float((5 * number + 5) ** 2 - (5 * number + 1) ** 2)


def models_of(seed: int) -> Models:
    import torch

    return random_trees.random_models(random_trees.FAMILIES[seed % 2], seed, VOCAB_SIZE, torch.float32)


def prompts_of(seed: int, num: int) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [
        random_trees.prompt_of(generator.integers(VOCAB_SIZE, size=int(size)).tolist(), f"{seed}-{number}")
        for number, size in enumerate(generator.integers(1, 12, num))
    ]


def turns_of(num_rounds: Sequence[int], batch: int) -> list[list[int]]:
    """The texts in each round of the batch, numbered as they come: a server in plain Python.

    Args:
        num_rounds: of each text of the group.
        batch: texts at a time.
    """
    numbers, running, found = count(), dict[int, int](), list[list[int]]()
    left = sum(num_rounds)
    while left:
        while len(running) < batch:
            number = next(numbers)
            if num_rounds[number % len(num_rounds)]:
                running[number] = num_rounds[number % len(num_rounds)]
        found.append(list(running))
        left -= sum(number < len(num_rounds) for number in running)
        running = {number: num - 1 for number, num in running.items() if num > 1}
    return found


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("policy", POLICIES, ids=["ar", "chain", "ddtree", "joint"])
@pytest.mark.parametrize("num", [1, 2, 7])
def test_a_group_is_served_as_the_replay_serves_it(policy: AnyPolicy, num: int, sampling: Sampling) -> None:
    for seed in range(3):
        models, prompts = models_of(seed), prompts_of(seed, num)
        served = serve_group(models, policy, prompts, sampling, MOST, BATCH, SlowingClock())
        alone = [decode(models, policy, prompt, sampling, MOST) for prompt in prompts]
        assert [one.text.tolist() for one in served.texts] == [one.text.tolist() for one in alone]
        assert [one.stop_reason for one in served.texts] == [one.stop_reason for one in alone]
        if not isinstance(policy, JointBudget):
            for one, other in zip(served.texts, alone, strict=True):
                assert_same_rounds([ran.round for ran in one.rounds], [ran.round for ran in other.rounds])
            turns = turns_of([len(one.rounds) for one in alone], BATCH)
            assert [sorted(one.numbers) for one in served.rounds] == turns
            for number, one in enumerate(served.texts):
                own = [round_seconds(this) for this, turn in enumerate(turns) if number in turn]
                assert [ran.seconds.total_s for ran in one.rounds] == own
        assert all(len(one.numbers) == BATCH for one in served.rounds)
        assert served.total_s == sum(round_seconds(number) for number in range(len(served.rounds)))
        in_rounds = sum(ran.round.num_committed for one in served.came for ran in one.rounds)
        assert served.num_committed == in_rounds
        assert sum(len(one.rounds) for one in served.came) == BATCH * len(served.rounds)
        assert first_unequal_of_each(policy, served) == [None] * num


# Planted faults


def faults(served: ServedGroup, policy: AnyPolicy) -> list[str]:
    return [str(one) for one in first_unequal_of_each(policy, served) if one is not None]


def with_text(served: ServedGroup, number: int, change: Callable[[RanRound], RanRound]) -> ServedGroup:
    """The rounds of one text are others."""
    texts = list(served.texts)
    texts[number] = replace(texts[number], rounds=tuple(map(change, texts[number].rounds)))
    return replace(served, texts=tuple(texts))


def long_group(policy: AnyPolicy, seed: int = 3) -> ServedGroup:
    found = serve_group(models_of(seed), policy, prompts_of(seed, 7), GREEDY, MOST, BATCH, SlowingClock())
    assert len(found.texts[1].rounds) > 1
    return found


@pytest.mark.parametrize("policy", POLICIES, ids=["ar", "chain", "ddtree", "joint"])
def test_mixed_up_seconds_and_neighbours_are_seen(policy: AnyPolicy) -> None:
    served = long_group(policy)
    assert faults(served, policy) == []
    shifted = with_text(served, 1, lambda ran: replace(ran, seconds=StageSeconds(verify_s=1.5)))
    assert len(faults(shifted, policy)) == 1
    assert "seconds 1.5 in the run" in faults(shifted, policy)[0]
    numbers = served.rounds[-1].numbers
    wrong = replace(served.rounds[-1], numbers=(*numbers[1:], numbers[0] + 1))
    assert any("texts beside it" in one for one in faults(replace(served, rounds=(*served.rounds[:-1], wrong)), policy))
    assert "rounds of the batch" in faults(replace(served, rounds=served.rounds[:-1]), policy)[0]
    emptier = replace(served, batch=BATCH + 1)
    assert faults(emptier, policy)


def test_a_joint_budget_that_is_shared_out_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = JointBudget(9)
    assert faults(long_group(policy), policy) == []

    def otherwise(shared: Composition, drafts: Sequence[Draft]) -> list[DraftTree]:
        """The first text is forgotten: what it would have had goes to the others."""
        first = select_together(shared, drafts[:1])[0]
        rest = select_together(shared, drafts[1:]) if drafts[1:] else []
        return [DraftTree(first.tokens[:1], first.parents[:1]) if rest else first, *rest]

    monkeypatch.setattr(batched_speculation, "select_together", otherwise)
    assert any("tree" in one or "root" in one for one in faults(long_group(policy), policy))


def test_the_row_of_another_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(self: batched_buffers.SequenceRows, row: int, last: int) -> None:
        self.lengths[row], self.lengths[last] = self.lengths[last], 0

    def differs() -> bool:
        for seed in range(4):
            models, prompts = models_of(seed), prompts_of(seed, 7)
            alone = [decode(models, DDTree(7), prompt, GREEDY, MOST).text.tolist() for prompt in prompts]
            try:
                found = serve_group(models, DDTree(7), prompts, GREEDY, MOST, BATCH)
            except (ModelError, RuntimeError, IndexError):
                return True
            if [one.text.tolist() for one in found.texts] != alone:
                return True
        return False

    assert not differs()
    monkeypatch.setattr(batched_buffers.SequenceRows, "drop", faulty)
    assert differs()


# Groups


def records(sizes: Sequence[int]) -> list[SequenceRecord]:
    """So many turns of each prompt."""
    text, ids = np.array([1, 2], np.int32), np.array([1], np.int32)
    prompts = [Prompt(f"p{number}", "made-up", turn, 0, ids) for number, num in enumerate(sizes) for turn in range(num)]
    return [SequenceRecord(index, prompt, 0, text, "length") for index, prompt in enumerate(prompts)]


@pytest.mark.parametrize(
    ("sizes", "batch", "found"),
    [
        ((1,) * 8, 2, [4, 4]),
        ((1,) * 9, 2, [4, 5]),
        ((1,) * 10, 2, [4, 4, 2]),
        ((3, 2, 2, 2), 2, [5, 4]),
        ((1, 1), 4, [2]),
        ((2, 2, 2), 1, [2, 2, 2]),
    ],
)
def test_groups_are_of_whole_prompts(sizes: tuple[int, ...], batch: int, found: list[int]) -> None:
    made = records(sizes)
    groups = groups_of(made, batch)
    assert [len(group) for group in groups] == found
    assert [record.index for group in groups for record in group] == list(range(len(made)))
    units = units_of(made, batch)
    for group in groups:
        assert len({units[record.index] for record in group}) == 1
    assert len(set(units.values())) == len(found)


# A whole confirmation


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("batches"), num_prompts=5)


ASKED = ("ddtree:budget=8", "joint:budget=6")
ALL = (*LABELS, "joint:budget=6")


def cost_of(made: Made, batch: int) -> CostFile:
    """Made-up prices of just these models on this machine."""
    setup = confirm_runs.setup_of(made, ConfirmOptions(made.folder / "unused"))
    file = setting_of(setup.models, "d", "float32", "cpu", setup.sampling)
    file = replace(file, contexts=(16, 512), node_counts=(0, 4, 16), repeats=3, batch=batch)
    return filled(file)


@pytest.fixture(scope="module")
def costs(made: Made) -> dict[int, Path]:
    paths = {batch: made.folder / f"cost{batch}.json" for batch in (1, 2)}
    for batch, path in paths.items():
        write_cost_file(path, cost_of(made, batch))
    return paths


def run(made: Made, out: Path, *more: str) -> int:
    asked = [part for one in ASKED for part in ("-p", one)]
    return main(["confirm", "--trace", str(made.folder / "trace"), *asked, "--out", str(out), *more])


def measured_of(folder: Path, *columns: str) -> dict[tuple[str, int], tuple[object, ...]]:
    rows = read_results(folder / "results.parquet").filter(pl.col("kind") == "measured")
    return {
        (row["policy"], row["sequence"]): tuple(row[name] for name in columns) for row in rows.iter_rows(named=True)
    }


COUNTS = ("rounds", "drafted", "accepted", "committed", "clipped", "stop_reason")


def test_texts_and_rounds_are_those_of_single_texts_and_of_the_prediction(
    made: Made, costs: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(made, tmp_path / "one") == 0
    assert run(made, tmp_path / "two", "--batch", "2", "--cost", str(costs[2])) == 0
    alone, served = (measured_of(tmp_path / name, *COUNTS) for name in ("one", "two"))
    for label in LABELS:
        assert [served[label, index] for index in range(10)] == [alone[label, index] for index in range(10)]
    results = read_results(tmp_path / "two" / "results.parquet")
    joint = results.filter(pl.col("policy") == "joint:budget=6").sort("sequence")
    ran, foreseen = (joint.filter(pl.col("kind") == kind).select(COUNTS) for kind in ("measured", "predicted"))
    assert ran.equals(foreseen)
    assert ran["drafted"].sum() < 4 * ran["rounds"].sum()
    assert {json.loads(settings)["batch"] for settings in results["settings"]} == {2}
    ids = {name: set(read_results(tmp_path / name / "results.parquet")["policy_id"]) for name in ("one", "two")}
    assert not ids["one"] & ids["two"]
    shown = capsys.readouterr().out
    for part in (
        "Rounds and rows are those of the trace: no difference",
        "2 texts at a time",
        "5 prompts in 3 groups",
        "all 2 texts together",
        "10 of 10",
        "[95 %] over groups",
        "Fewer than 20 groups",
    ):
        assert part in shown


def at(cost: CostTable, stage: str, context: int, num_drafted: float) -> float:
    """Linear between whole numbers."""
    low = int(num_drafted)
    share = num_drafted - low
    found = cost.curve(stage, context)
    return float(found[low] * (1 - share) + (found[low + 1] * share if share else 0))


def foreseen_seconds(policy: AnyPolicy, texts: Sequence[RecordedSequence], cost: CostTable) -> list[list[float]]:
    """Seconds of each stage that each text of a group waits, from each text's own rounds in `turns_of`."""
    own = [list(rounds(policy, text)) for text in texts]
    found, seen = [[0.0] * 4 for _ in texts], Counter[int]()
    for turn in turns_of([len(each) for each in own], 2):
        drafted, contexts = [], []
        for number in turn:
            text, one = texts[number % len(texts)], own[number % len(texts)][seen[number]]
            seen[number] += 1
            drafted.append(one.num_drafted)
            contexts.append(len(text.prompt.token_ids) + one.position)
        mean, context = sum(drafted) / 2, round(sum(contexts) / 2)
        stages = [at(cost, stage, context, mean) for stage in STAGES]
        if isinstance(policy, Autoregressive):
            stages = [0.0, 0.0, at(cost, "plain", context, 0), 0.0]
        for number in turn:
            if number < len(texts):
                found[number] = [before + more for before, more in zip(found[number], stages, strict=True)]
    return found


def test_the_prediction_is_of_just_what_ran(made: Made, costs: dict[int, Path], tmp_path: Path) -> None:
    from simlab.command_cost import cost_table_of
    from simlab.traces.cost_file import read_cost_file

    assert run(made, tmp_path / "out", "--batch", "2", "--cost", str(costs[2])) == 0
    cost = cost_table_of(read_cost_file(costs[2]))
    rows = read_results(tmp_path / "out" / "results.parquet").filter(pl.col("kind") == "predicted")
    texts = {one.index: one for one in made.trace.recorded(made.trace.draft_name())}
    groups = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    policies: tuple[AnyPolicy, ...] = (Autoregressive(), Chain(LONGEST_BLOCK), DDTree(8))
    for label, policy in zip(LABELS, policies, strict=True):
        for group in groups:
            expected = foreseen_seconds(policy, [texts[index] for index in group], cost)
            for index, seconds in zip(group, expected, strict=True):
                row = rows.filter((pl.col("policy") == label) & (pl.col("sequence") == index)).row(0, named=True)
                assert [row[f"{stage}_s"] for stage in STAGES] == pytest.approx(seconds, rel=1e-9)


def test_a_script_reads_speeds_of_texts_and_of_the_machine(
    made: Made, costs: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(made, out, "--batch", "2", "--cost", str(costs[2]), "--json", "--by", "dataset") == 0
    value = json.loads(capsys.readouterr().out)
    assert value == json.loads((out / "confirm.json").read_text())
    assert [value["ran"][name] for name in ("batch", "groups", "group_runs", "prompts", "prompt_runs")] == [
        2,
        3,
        3,
        5,
        5,
    ]
    groups = [json.loads(line) for line in (out / LOG).read_text().splitlines() if '"kind":"group"' in line]
    assert [one["group"] for one in groups] == [0, 1, 2]
    assert [row["policy"] for row in value["rows"]] == list(ALL)
    for row in value["rows"]:
        assert (row["lossless"], row["counts_equal_replay"], row["num_texts"]) == ("exact", True, 10)
        assert row["prompts"] == 5
        runs = [run for one in groups for run in one["machine"] if run["policy_id"] == row["policy_id"]]
        machine = sum(run["committed"] for run in runs) / sum(run["total_s"] for run in runs)
        assert row["measured_machine_tokens_per_s"] == pytest.approx(machine)
        assert machine == pytest.approx(2 * row["measured_tokens_per_s"], rel=0.3)
        texts = [
            (run, one) for group in groups for one in group["sequences"] for run in one["runs"]
            if run["policy_id"] == row["policy_id"]
        ]  # fmt: skip
        tokens = sum(len(run["text"]) - 1 for run, _ in texts)
        seconds = sum(sum(run["seconds"].values()) for run, _ in texts)
        assert row["measured_tokens_per_s"] == pytest.approx(tokens / seconds)
    assert {row["slice"] for row in value["slices"]} == {"made-up"} or len(value["slices"]) >= len(ALL)
    assert value["rank_agreement"]["policies"] == len(ALL)


def test_intervals_are_over_groups(made: Made, tmp_path: Path) -> None:
    """Of each policy's speed: by hand from the sums of each group."""
    from simlab.analysis.intervals import ratio_interval

    done = confirmed(made, ConfirmOptions(tmp_path / "out", batch=2), ASKED)
    rows = read_results(tmp_path / "out" / "results.parquet").filter(pl.col("kind") == "measured")
    groups = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    for one in done.policies:
        own = rows.filter(pl.col("policy") == one.policy)
        parts = [own.filter(pl.col("sequence").is_in(group)) for group in groups]
        tokens = np.array([part["committed"].sum() for part in parts])
        seconds = np.array([sum(part[f"{stage}_s"].sum() for stage in STAGES) for part in parts])
        expected = ratio_interval(tokens, seconds)
        assert one.tokens_per_s_interval.low == pytest.approx(expected.low)
        assert one.tokens_per_s_interval.high == pytest.approx(expected.high)


# Stopping and going on


class Watch:
    """Serving that notes its order, and stops the run after so many groups under a policy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> None:
        self.asked: list[tuple[str, tuple[str, ...], int]] = []
        self._most = most
        monkeypatch.setattr(confirm_batch, "serve_group", self)

    def __call__(
        self, models: Models, policy: AnyPolicy, prompts: Sequence[Prompt], sampling: Sampling, most: int, batch: int,
        clock: Callable[[], float],
    ) -> ServedGroup:  # fmt: skip
        if self._most is not None and len(self.asked) == self._most:
            raise KeyboardInterrupt
        self.asked.append((type(policy).__name__, tuple(one.prompt_id for one in prompts), batch))
        return serve_group(models, policy, prompts, sampling, most, batch, clock)


def test_a_killed_run_goes_on_after_its_last_whole_group(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ConfirmOptions(tmp_path / "out", batch=2, repeats=2)
    # The warm-up, the first group, and half of the second.
    Watch(monkeypatch, most=4 + 4 + 2)
    with pytest.raises(KeyboardInterrupt):
        confirmed(made, options, ASKED)
    path = tmp_path / "out" / LOG
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    path.write_bytes(b"".join(lines) + lines[-1][: len(lines[-1]) // 2])
    rest = Watch(monkeypatch)
    done = confirmed(made, replace(options, resume=True), ASKED)
    assert not done.has_failed
    assert path.read_bytes().startswith(b"".join(lines))
    names = [name for name, _, _ in rest.asked[:4]]
    timed = rest.asked[4:]
    assert len(timed) == 5 * 4
    groups = [("p0", "p0", "p1", "p1"), ("p2", "p2", "p3", "p3"), ("p4", "p4")]
    for place in range(1, 6):
        repeat, number = divmod(place, 3)
        order = names if (repeat + number) % 2 == 0 else names[::-1]
        turn = timed[4 * (place - 1) : 4 * place]
        assert turn == [(name, groups[number], 2) for name in order]
    assert done.ran.prompt_runs == 10
    assert "3 groups, 6 runs of a group" in done.text()
    monkeypatch.setattr(confirm_audit, "audit_text", None)
    monkeypatch.setattr(confirm_batch, "serve_group", None)
    assert confirmed(made, replace(options, resume=True), ASKED).value() == done.value()


def test_it_stops_after_a_whole_group(made: Made, tmp_path: Path) -> None:
    options = ConfirmOptions(tmp_path / "out", batch=2, repeats=10, time_limit_s=0)
    done = confirmed(made, options, ASKED)
    assert (done.ran.ended, done.ran.prompts) == ("time", 2)
    assert [len(done.policies), done.policies[0].judged.num_texts] == [4, 4]  # type: ignore[union-attr]
    rows = read_results(tmp_path / "out" / "results.parquet")
    assert set(rows["sequence"]) == {0, 1, 2, 3}


def test_another_batch_is_another_run(made: Made, costs: dict[int, Path], tmp_path: Path) -> None:
    options = ConfirmOptions(tmp_path / "out", batch=2, time_limit_s=0, repeats=10)
    confirmed(made, options, ASKED)
    with pytest.raises(TraceError, match="was begun with"):
        confirmed(made, replace(options, batch=3, resume=True), ASKED)
    with pytest.raises(TraceError, match="was begun with"):
        confirmed(made, replace(options, batch=1, resume=True), ASKED)


@pytest.mark.parametrize(
    ("batch", "priced", "said"),
    [
        (2, 1, "was measured with batch 1, and this run has 2; .*`simlab profile --batch 2 --out FILE`"),
        (1, 2, "was measured with batch 2, and this run has 1; .*`simlab profile --out FILE`"),
        (3, 2, "was measured with batch 2, and this run has 3; .*`simlab profile --batch 3 --out FILE`"),
    ],
)
def test_prices_of_another_batch_are_refused(
    batch: int, priced: int, said: str, made: Made, costs: dict[int, Path], tmp_path: Path
) -> None:
    from simlab.command_confirm_run import confirm
    from simlab.command_replay import with_references

    with pytest.raises(CostError, match=said):
        confirm(ConfirmOptions(tmp_path / "out", batch=batch), made.trace, with_references(ASKED), costs[priced])


def test_without_prices_it_says_what_to_measure(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(made, tmp_path / "out", "--batch", "2", "--limit", "2") == 0
    shown = capsys.readouterr().out
    assert "measure them with `simlab profile --batch 2`" in shown
    assert run(made, tmp_path / "more", "--batch", "2", "-p", "caddtree") == 2
    assert "there are no prices" in capsys.readouterr().err
    assert main(["confirm", "--batch", "0", "--out", str(tmp_path / "none")]) == 2


# Faults that a whole run must see


def spoilt(monkeypatch: pytest.MonkeyPatch, policy: str, change: Callable[[ServedGroup], ServedGroup]) -> None:
    def faulty(*arguments: Any) -> ServedGroup:  # noqa: ANN401
        found = serve_group(*arguments)
        return change(found) if repr(arguments[1]).startswith(policy) else found

    monkeypatch.setattr(confirm_batch, "serve_group", faulty)


def exchanged_seconds(served: ServedGroup) -> ServedGroup:
    """The first two texts have each other's seconds, as far as they go."""
    one, other = served.texts[:2]
    ours = [ran.seconds for ran in one.rounds]
    theirs = [ran.seconds for ran in other.rounds]
    texts = [_with_seconds(one, theirs[::-1]), _with_seconds(other, ours[::-1]), *served.texts[2:]]
    return replace(served, texts=tuple(texts))


def _with_seconds(one: Decoded, seconds: Sequence[StageSeconds]) -> Decoded:
    given = [*seconds, *(ran.seconds for ran in one.rounds[len(seconds) :])]
    return replace(one, rounds=tuple(replace(ran, seconds=each) for ran, each in zip(one.rounds, given, strict=False)))


def exchanged_texts(served: ServedGroup) -> ServedGroup:
    """The first text is that of the second prompt."""
    one, other = served.texts[:2]
    return replace(served, texts=(replace(one, text=other.text, rounds=other.rounds), *served.texts[1:]))


def row_of(done: Confirmation, label: str) -> dict[str, Any]:
    return next(one.row() for one in done.policies if one.policy == label)


def test_exchanged_seconds_fail(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, "chain", exchanged_seconds)
    done = confirmed(made, ConfirmOptions(tmp_path / "out", batch=2, limit=2), ASKED)
    assert done.has_failed
    assert row_of(done, "chain")["num_equal"] == 2
    assert row_of(done, "ddtree:budget=8")["counts_equal_replay"] is True
    assert "had other rounds than the replay of their own rows" in done.verdict
    assert "seconds" in done.verdict


def test_exchanged_texts_fail(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, "chain", exchanged_texts)
    done = confirmed(made, ConfirmOptions(tmp_path / "out", batch=2, limit=2), ASKED)
    assert row_of(done, "chain")["lossless"] == "FAILED"
    assert "FAILED: the text of chain is not the target's" in done.verdict


def test_a_batch_that_is_not_kept_full_fails(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchedSpeculation, "has_place", property(lambda self: not self.running))
    done = confirmed(made, ConfirmOptions(tmp_path / "out", batch=2, limit=2), ASKED)
    assert done.has_failed
    assert "texts beside it" in done.verdict or "rounds of the batch" in done.verdict
