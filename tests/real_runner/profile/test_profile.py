"""Profiling with tiny models: real rounds in every cell, nothing lost when it is stopped, refusals."""

import itertools
import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from forked_processes import begun, kill_at
from systems import GREEDY
from tiny_models import VOCAB_SIZE

from simlab.arrays import Ints
from simlab.cli.main import main
from simlab.cost import GRID_STAGES, PLAIN, StageSeconds, Visits
from simlab.draft import Draft, Marginals
from simlab.errors import CostError, ModelError, SimlabError
from simlab.policies.costs.cell_prices import ratio_half_widths
from simlab.policies.named.ddtree import DDTree
from simlab.real_runner.decoding.decoded import DecodedRound
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.profile import profile as profiling
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.profile.profile import ProfileSweeps, profile
from simlab.real_runner.profile.rounds import (
    MEASURED_ROUNDS,
    MEASURED_STEPS,
    UNMEASURED,
    PlainStepTimer,
    RoundTimer,
    TreesOfSize,
    check_grid,
    empty_file,
    first_position,
)
from simlab.real_runner.targets.model import Target
from simlab.traces.artefacts.cost import CostFile, read_cost_file, write_cost_file

DEPTH = 3
POSITIONS = 1024
NODE_COUNTS = (0, 1, 5, 40)
CONTEXTS = (24, 60)
NUM_PLACES = 2 * 4


Rounds = list[list[tuple[int, DecodedRound]]]


def visits_before(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Let so many visits to rounds succeed, then fail."""
    real, count = RoundTimer.visit, itertools.count()

    def failing(self: RoundTimer, num_drafted: int, num_unmeasured: int) -> list[StageSeconds]:
        if next(count) >= number:
            raise error
        return real(self, num_drafted, num_unmeasured)

    monkeypatch.setattr(RoundTimer, "visit", failing)


def prefixes(earlier: CostFile, later: CostFile) -> bool:
    return all(later.samples[cell][: len(seconds)] == seconds for cell, seconds in earlier.samples.items())


# What is measured


def test_every_cell_gets_its_samples(options: ProfileOptions) -> None:
    done = profile(options)
    file = done.file
    assert read_cost_file(options.out) == file
    assert file.is_complete
    assert done.num_visits == 2 * NUM_PLACES
    for (stage, _, _), seconds in file.samples.items():
        assert len(seconds) == (2 * MEASURED_STEPS if stage == PLAIN else 2 * MEASURED_ROUNDS)
        assert min(seconds) > 0
    assert (file.contexts, file.node_counts, file.repeats) == ((24, 60), (0, 1, 5, 40), 2 * MEASURED_ROUNDS)
    assert (file.block_size, file.dtype, file.batch) == (DEPTH + 1, "float32", 1)


def test_the_rounds_are_those_of_the_cell(options: ProfileOptions, ran: Rounds) -> None:
    file = profile(options).file
    left = [one for (one,) in ran[NUM_PLACES * MEASURED_ROUNDS :]]  # without the visits that warm up
    wanted = {(n, context) for n in NODE_COUNTS for context in CONTEXTS}
    measured: dict[tuple[int, int], list[StageSeconds]] = {cell: [] for cell in wanted}
    seen: Counter[tuple[int, int]] = Counter()
    while left:
        position, first = left[0]
        cell = (first.round.num_drafted, min(CONTEXTS, key=lambda c: abs(c - position)))
        num = UNMEASURED + MEASURED_ROUNDS
        visit, left = left[:num], left[num:]
        seen[cell] += 1
        assert {round_.round.num_drafted for _, round_ in visit} == {cell[0]}
        assert all(abs(position - cell[1]) <= 18 for position, _ in visit)
        assert all(round_.marginals is not None for _, round_ in visit)
        measured[cell] += [round_.seconds for _, round_ in visit[-MEASURED_ROUNDS:]]
    assert set(seen.values()) == {2}
    for (n, context), rounds in measured.items():
        for stage in GRID_STAGES:
            assert file.samples[stage, n, context] == tuple(getattr(one, f"{stage}_s") for one in rounds)


def test_trees_are_those_of_the_policy() -> None:
    log_probs = np.sort(np.random.default_rng(1).uniform(-4, 0, (3, 9)).astype(np.float32), axis=1)[:, ::-1]
    ids = np.tile(np.arange(9, dtype=np.int32), 3)
    draft = Draft(Marginals(ids, log_probs.ravel(), np.array([0, 9, 18, 27], np.int32)), 2, np.array([2], np.int32), 0)
    trees = TreesOfSize(0, 20)
    assert trees.select(draft).num_drafted == 0
    trees.num_drafted = 12
    found, wanted = trees.select(draft), DDTree(12).select(draft)
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.parents.tolist() == wanted.parents.tolist()
    assert (trees.budget, trees.needs) == (20, DDTree(20).needs)


@pytest.mark.parametrize("context", [1, 7, 24, 200])
def test_rounds_stay_about_their_context(models: Models, token_ids: Ints, context: int, ran: Rounds) -> None:
    rounds = RoundTimer(models, 16, token_ids, context, GREEDY, time.perf_counter)
    for _ in range(12):
        assert len(rounds.visit(16, 1)) == MEASURED_ROUNDS
    positions = [position for ((position, _),) in ran]
    assert min(positions) == max(1, context - min(16, context // 8))
    assert max(positions) <= context + 3 * (DEPTH + 1)
    assert positions.count(min(positions)) >= 2, "it came back to where it began"


def test_rounds_after_coming_back_commit_what_was_committed_first(models: Models, token_ids: Ints, ran: Rounds) -> None:
    rounds = RoundTimer(models, 8, token_ids, 64, GREEDY, time.perf_counter)
    for _ in range(9):
        rounds.visit(8, 1)
    texts: list[list[int]] = []
    for ((position, round_),) in ran:
        if position == 56:
            texts.append([])
        texts[-1] += [int(round_.round.tree.tokens[node]) for node in (0, *round_.round.path)]
    assert len(texts) >= 3
    for text in texts[1:]:
        shortest = min(len(text), len(texts[0]))
        assert text[:shortest] == texts[0][:shortest]


def test_a_stop_token_stops_no_measurement(models: Models, token_ids: Ints, ran: Rounds) -> None:
    stopping = replace(models, target=replace(models.target, stop_token_ids=tuple(range(VOCAB_SIZE))))
    committed = []
    for each in (models, stopping):
        rounds = RoundTimer(each, 40, token_ids, 40, GREEDY, time.perf_counter)
        for _ in range(5):
            rounds.visit(40, 1)
        committed.append([round_.round.num_committed for ((_, round_),) in ran])
        ran.clear()
    assert max(committed[0]) > 1
    assert committed[0] == committed[1]


def test_a_context_at_the_end_of_the_positions(models: Models, token_ids: Ints, ran: Rounds) -> None:
    longest = POSITIONS - DEPTH - 1
    check_grid(models, longest, 8)
    rounds = RoundTimer(models, 8, token_ids, longest, GREEDY, time.perf_counter)
    for _ in range(6):
        rounds.visit(8, 1)
    positions = [position for ((position, _),) in ran]
    assert max(positions) + DEPTH < POSITIONS
    assert min(positions) + first_position(models, longest)[1] + DEPTH <= POSITIONS
    assert min(positions) > longest - 50
    plain = PlainStepTimer(models, token_ids, longest, GREEDY, time.perf_counter)
    assert len(plain.visit(longest, 1)) == MEASURED_STEPS
    with pytest.raises(
        ModelError, match=r"a context of 1,021 and a draft of 3 need 1,025 positions.*give smaller --con"
    ):
        check_grid(models, longest + 1, 8)


def test_plain_steps_stand_about_their_context(
    models: Models, token_ids: Ints, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    real = Target.states

    def watched(self: Target, ids: object, cache: object, *rest: object) -> object:
        if ids.shape[1] == 1:  # type: ignore[attr-defined]
            lengths.append(cache.get_seq_length())  # type: ignore[attr-defined]
        return real(self, ids, cache, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Target, "states", watched)
    plain = PlainStepTimer(models, token_ids, 300, GREEDY, time.perf_counter)
    for context in (300, 40, 300, 120):
        lengths.clear()
        assert len(plain.visit(context, 1)) == MEASURED_STEPS
        assert lengths == list(range(context - 2, context + 2))


# Sweeps


@pytest.fixture(scope="module")
def file(models: Models, pair: tuple[Path, Path]) -> CostFile:
    target, draft = map(str, pair)
    return empty_file(ProfileOptions(target, draft, Path("cost.json"), "a text", NODE_COUNTS, CONTEXTS), models)


def visit_all(sweeps: ProfileSweeps, number: int, most: int | None = None) -> None:
    for place in sweeps.sweep(number)[:most]:
        sweeps.add(place, [StageSeconds(1.0, 0.0, 2.0, 3.0, 4.0)] * MEASURED_ROUNDS, [1.0] * MEASURED_STEPS)


def test_a_sweep_visits_every_place_once_in_its_own_order(file: CostFile) -> None:
    sweeps = ProfileSweeps(file, 3 * MEASURED_ROUNDS)
    orders = []
    for number in range(3):
        orders.append(sweeps.sweep(number))
        visit_all(sweeps, number)
        assert sweeps.sweep(number) == []
    assert sweeps.num_left == 0
    assert all(sorted(map(str, order)) == sorted(map(str, sweeps.grid_points)) for order in orders)
    assert len({tuple(map(str, order)) for order in orders} | {tuple(map(str, sweeps.grid_points))}) == 4
    assert orders == [ProfileSweeps(file, 3 * MEASURED_ROUNDS).sweep(number) for number in range(3)]


def test_rounds_and_plain_decoding_take_turns_in_being_first(
    options: ProfileOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for timer in (RoundTimer, PlainStepTimer):

        def watched(self: Any, *given: Any, name: str = timer.__name__, real: Any = timer.visit) -> Any:  # noqa: ANN401
            calls.append(name)
            return real(self, *given)

        monkeypatch.setattr(timer, "visit", watched)
    profile(options)
    rounds, plain = RoundTimer.__name__, PlainStepTimer.__name__
    assert calls[: 4 * NUM_PLACES] == [rounds, plain] * 2 * NUM_PLACES, "the visits that warm up, and the first sweep"
    assert calls[4 * NUM_PLACES :] == [plain, rounds] * NUM_PLACES


def test_a_first_visit_that_is_slow_changes_no_figure(options: ProfileOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[Any, ...]] = set()

    def first(*place: Any) -> bool:  # noqa: ANN401
        is_first = place not in seen
        seen.add(place)
        return is_first

    def rounds(timer: RoundTimer, num_drafted: int, _num_unmeasured: int) -> list[StageSeconds]:
        return [StageSeconds(verify_s=90.0 if first(timer, num_drafted) else 2.0 + num_drafted)] * MEASURED_ROUNDS

    def steps(timer: PlainStepTimer, context: int, _num_unmeasured: int) -> list[float]:
        return [5.0 if first(timer, context) else 1.0] * MEASURED_STEPS

    monkeypatch.setattr(RoundTimer, "visit", rounds)
    monkeypatch.setattr(PlainStepTimer, "visit", steps)
    for repeats in (MEASURED_ROUNDS, 2 * MEASURED_ROUNDS):  # the second in a process that goes on
        seen.clear()
        file = profile(replace(options, repeats=repeats, resume=True)).file
        assert file.is_complete
        for (stage, num_drafted, _), seconds in file.samples.items():
            assert set(seconds) == {{"verify": 2.0 + num_drafted, PLAIN: 1.0}.get(stage, 0.0)}


def test_stages_are_kept_apart(file: CostFile) -> None:
    sweeps = ProfileSweeps(file, 2)
    sweeps.add(
        (5, 24), [StageSeconds(1.0, 0.0, 2.0, 3.0, 4.0), StageSeconds(5.0, 0.0, 6.0, 7.0, 8.0)], [0.5] * MEASURED_STEPS
    )
    found = {cell: seconds for cell, seconds in sweeps.file.samples.items() if seconds}
    wanted = {"draft": (1.0, 5.0), "select": (2.0, 6.0), "verify": (3.0, 7.0), "commit": (4.0, 8.0)}
    plain = {(PLAIN, 5, 24): (0.5,) * MEASURED_STEPS}
    assert found == {(stage, 5, 24): seconds for stage, seconds in wanted.items()} | plain


def test_sweeps_go_on_where_a_file_ends(file: CostFile) -> None:
    whole = ProfileSweeps(file, 2 * MEASURED_ROUNDS + 1)
    assert whole.num_sweeps == 3
    visit_all(whole, 0)
    visit_all(whole, 1, most=4)
    later = ProfileSweeps(whole.file, 2 * MEASURED_ROUNDS + 1)
    assert later.sweep(0) == []
    assert later.sweep(1) == whole.sweep(1)
    assert later.num_left == whole.num_left == 3 * NUM_PLACES - NUM_PLACES - 4


def test_a_cell_that_lacks_a_stage_is_visited_again(file: CostFile) -> None:
    sweeps = ProfileSweeps(file, 2)
    visit_all(sweeps, 0)
    samples = {cell: seconds for cell, seconds in sweeps.file.samples.items() if cell != ("commit", 5, 24)}
    assert ProfileSweeps(replace(file, samples=samples), 2).sweep(0) == [(5, 24)]


# Rules that end it


def noisy_clock(monkeypatch: pytest.MonkeyPatch, sizes: Sequence[float]) -> None:
    """Let rounds of each visit take one of some times, in turn, and a token of plain decoding always a second."""
    times = itertools.cycle(sizes)

    def rounds(_timer: RoundTimer, _num_drafted: int, _num_unmeasured: int) -> list[StageSeconds]:
        return [StageSeconds(verify_s=next(times))] * MEASURED_ROUNDS

    monkeypatch.setattr(RoundTimer, "visit", rounds)
    monkeypatch.setattr(PlainStepTimer, "visit", lambda *_: [1.0] * MEASURED_STEPS)


def num_sweeps(file: CostFile) -> int:
    assert len({len(seconds) for (stage, _, _), seconds in file.samples.items() if stage != PLAIN}) == 1
    return len(file.samples["verify", 0, CONTEXTS[0]]) // MEASURED_ROUNDS


def test_it_goes_on_until_prices_are_known(options: ProfileOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy_clock(monkeypatch, (2.0, 2.1, 2.2, 2.15, 2.05))
    wide = profile(replace(options, until_interval=0.1)).file
    narrow = profile(replace(options, until_interval=0.02, resume=True)).file
    assert options.repeats // MEASURED_ROUNDS <= num_sweeps(wide) < num_sweeps(narrow)
    assert max(ratio_half_widths(wide.samples, wide.visits).values()) <= 0.1
    assert max(ratio_half_widths(narrow.samples, narrow.visits).values()) <= 0.02
    assert narrow.repeats == options.repeats, "what a later run without a rule wants is what was asked for"
    assert profile(replace(options, resume=True)).num_visits == 0


# Stopping and going on


def test_a_file_without_plain_decoding_in_its_visits_is_not_gone_on_with(options: ProfileOptions) -> None:
    file = profile(options).file
    samples = {cell: seconds for cell, seconds in file.samples.items() if cell[0] != PLAIN or cell[1] == 0}
    write_cost_file(options.out, replace(file, visits=Visits(), samples=samples))
    with pytest.raises(CostError, match=r"visits of 2 rounds and 8 steps, each at another time, and this run has of 3"):
        profile(replace(options, resume=True, repeats=8))


def test_what_was_measured_before_an_interrupt_is_kept(
    options: ProfileOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        visits_before(patched, NUM_PLACES + 5, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            profile(options)
    kept = read_cost_file(options.out)
    rounds = sum(len(seconds) for (stage, _, _), seconds in kept.samples.items() if stage == "verify")
    assert rounds == 5 * MEASURED_ROUNDS, "the first visits only warm up"
    assert not kept.is_complete
    done = profile(replace(options, resume=True))
    assert done.file.is_complete
    assert prefixes(kept, done.file)
    assert {len(seconds) for (stage, _, _), seconds in done.file.samples.items() if stage != PLAIN} == {
        2 * MEASURED_ROUNDS
    }


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(4))
def test_a_killed_profile_goes_on_with_what_it_had(number: int, options: ProfileOptions) -> None:
    typed = ["--target", options.target, "--draft", options.draft, "--contexts", "24,60", "--node-counts", "1,5,40"]
    command = ["profile", *typed, "--out", str(options.out), "--repeats", "200"]
    kill_at(options.out, begun(command), 0.04 * number)
    kept = read_cost_file(options.out)
    assert kept.is_complete, "a whole sweep was written"
    fewest = min(map(len, kept.samples.values()))
    assert main(["profile", "--out", str(options.out), "--resume", "--repeats", str(fewest + 2)]) == 0
    file = read_cost_file(options.out)
    assert prefixes(kept, file)
    assert min(map(len, file.samples.values())) >= fewest + 2
    assert [path.name for path in options.out.parent.iterdir()] == ["cost.json"]


# Refusals


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": "bfloat16"}, "was measured with dtype float32, and this run has bfloat16"),
        ({"threads": 2}, "was measured with threads 1, and this run has 2"),
        ({"temperature": 0.5}, "was measured with temperature 0.0, and this run has 0.5"),
        ({"contexts": (24, 61)}, "was measured with contexts 24,60, and this run has 24,61"),
        ({"node_counts": (0, 1)}, "was measured with node counts 0,1,5,40, and this run has 0,1"),
    ],
)
def test_another_setting_is_not_gone_on_with(
    options: ProfileOptions, change: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(replace(options, repeats=1))
    before = options.out.read_bytes()
    monkeypatch.setattr(profiling, "_measure", None)
    try:
        with pytest.raises(CostError, match=said):
            profile(replace(options, resume=True, **change))  # type: ignore[arg-type]
    finally:
        torch.set_num_threads(1)
    assert options.out.read_bytes() == before


@pytest.mark.parametrize("block_size", [2, 4])
def test_trees_beyond_the_candidates_are_refused_before_the_work(block_size: int, tmp_path: Path) -> None:
    target, draft = tiny_models.make_pair(tmp_path, block_size=block_size)
    models = load_models(str(target), str(draft), "float32", "cpu")
    most = sum(VOCAB_SIZE**depth for depth in range(1, block_size))
    check_grid(models, 40, min(most, 1_000))
    with pytest.raises(ModelError, match=f"fill no more than {most:,}; give smaller --node-counts"):
        check_grid(models, 40, most + 1)


def existing_file(options: ProfileOptions) -> ProfileOptions:
    options.out.write_text("{}")
    return options


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (existing_file, "is there already; add --resume to go on with it, or give another --out"),
        (lambda options: replace(existing_file(options), resume=True), "is no cost file"),
        (lambda options: replace(options, draft="no/such/drafter/there"), "no/such/drafter/there"),
        (lambda options: replace(options, device="cuda"), "torch sees no GPU"),
        (lambda options: replace(options, contexts=(24, 2000)), "give smaller --contexts"),
        (lambda options: replace(options, node_counts=(0, 2_000_000)), "give smaller --node-counts"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    options: ProfileOptions,
    changed: Callable[[ProfileOptions], ProfileOptions],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiling, "_measure", None)
    with pytest.raises(SimlabError, match=said) as refused:
        profile(changed(options))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node_counts": (1, 2)}, "node counts must rise from 0, the root alone; got 1, 2"),
        ({"node_counts": (0, 2, 2)}, "got 0, 2, 2"),
        ({"contexts": (0, 8)}, "contexts must rise from 1 or above; got 0, 8"),
        ({"contexts": ()}, "got none"),
        ({"repeats": 0}, "at least 1; got 0"),
        ({"threads": 0}, "at least 1; got 6, 1 and 0"),
        ({"batch": 0}, "at least 1; got 6, 0 and None"),
        ({"temperature": -1.0}, "temperature must be 0"),
        ({"text": ""}, "text must not be empty"),
    ],
)
def test_options_are_checked(options: ProfileOptions, change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(options, **change)  # type: ignore[arg-type]


def test_a_file_names_no_host_and_no_person(file: CostFile) -> None:
    told = json.dumps([file.device, file.system, dict(file.versions), file.attention, file.execution])
    assert platform.node() not in told
    assert str(Path.home()) not in told
    assert set(file.versions) == {"torch", "transformers", "numpy", "numba"}
