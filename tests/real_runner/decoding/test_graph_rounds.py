"""Passes of fixed sizes, run as they are: rounds and texts are those of the runner, and a round waits once.

What only a GPU can do, capturing these passes, is in `test_gpu.py`.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import random_trees
import torch
from lossless_checks import Case, check_text, fixed_cases, plain_of

from simlab.errors import ModelError
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.execution.captured_work import Moment
from simlab.real_runner.execution.executions import context_for, node_counts_at_steps, rows_for
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling

CASES = list(fixed_cases(30, seed=5))


def graphed(models: Models) -> Models:
    return replace(models, graphs=GraphedModels(models.target, models.block_drafter))


def decoded(models: Models, case: Case, policy: AnyPolicy) -> DecodedText:
    return decode(models, policy, case.prompt, case.sampling, case.max_new_tokens)


def test_a_longer_text_takes_more_room() -> None:
    case = next(one for one in CASES if len(plain_of(one)) == 24)
    models = graphed(case.models)
    assert models.graphs is not None
    check_text(decoded(models, case, Chain()), plain_of(case), models, case.max_new_tokens)
    assert models.graphs._cache is not None
    before = models.graphs._cache.rows.room
    for policy in (DDTree(before), Chain()):
        check_text(decoded(models, case, policy), plain_of(case), models, case.max_new_tokens)
    assert models.graphs._cache.rows.room > before


def test_a_greedy_round_waits_for_its_verification_and_for_its_draft_only(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    wait = Moment.wait

    def counted(self: Moment) -> None:
        waits.append(1)
        wait(self)

    monkeypatch.setattr(Moment, "wait", counted)
    case = next(one for one in CASES if one.temperature == 0 and one.max_new_tokens == 24 and len(plain_of(one)) == 24)
    models = graphed(case.models)
    found = decoded(models, case, DDTree(8))
    assert len(waits) == 1 + 2 * len(found.rounds), "the prompt's own draft, and each round"
    waits.clear()
    plain = parse_policies(["ar"])[0].policy
    assert len(decoded(models, case, plain).text) == 1 + len(waits)


def test_time_taken_by_capturing_is_in_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing is made up here: a pass that takes half a second the first time."""
    case = next(one for one in CASES if len(plain_of(one)) == 24)
    models = graphed(case.models)
    assert models.graphs is not None
    graphs, seen = models.graphs.graphs, set()
    run = graphs.run

    def slow(key: str, work: Callable[[], None], changed: object = ()) -> None:
        if key not in seen:
            seen.add(key)
            began = time.perf_counter()
            time.sleep(0.2)
            graphs.seconds += time.perf_counter() - began
        run(key, work)

    monkeypatch.setattr(graphs, "run", slow)
    for policy in (DDTree(8), parse_policies(["ar"])[0].policy):
        assert max(ran.seconds.total_s for ran in decoded(models, case, policy).rounds) < 0.15
    assert graphs.seconds > 0.5


def test_going_back_repeats_the_rounds() -> None:
    case = next(one for one in CASES if one.temperature == 0 and len(plain_of(one)) == 24)
    models = graphed(replace(case.models, target=replace(case.models.target, stop_token_ids=())))
    running = Speculation(models, Chain(), case.sampling, 24, lambda: 0.0)
    text = running.add(case.prompt)
    first = text.root
    texts = []
    for _ in range(2):
        for _ in range(3):
            running.round()
        texts.append(text.text[:4].tolist())
        running.rewind(len(case.prompt.token_ids), first)
    assert texts[0] == texts[1] == plain_of(case)[:4]


def test_logits_that_are_no_law_are_refused() -> None:
    case = CASES[0]
    for what in ("target", "drafter"):
        models = random_trees.random_models("llama", 3, 12, torch.float32)
        models = replace(models, target=replace(models.target, stop_token_ids=()))
        running = Speculation(graphed(models), DDTree(4), Sampling(0, 0, 1, 0), 20, lambda: 0.0)
        running.add(case.prompt)
        layers = models.target.layers if what == "target" else models.block_drafter.layers
        weight = next(layers.parameters())
        with torch.no_grad():
            before = weight.clone()
            weight.fill_(float("nan"))
        try:
            with pytest.raises(ModelError, match="not numbers"):
                running.round()
        finally:
            with torch.no_grad():
                weight.copy_(before)


def test_sizes_rise_and_hold_what_they_are_for() -> None:
    for size, step in ((rows_for, 128), (context_for, 4096)):
        sizes = [size(number) for number in range(1, 3000)]
        assert sizes == sorted(sizes)
        assert all(number <= found < number + step for number, found in enumerate(sizes, start=1))
        assert all(size(found) == found for found in sizes)


def test_profiled_sizes_are_both_ends_of_every_step() -> None:
    found = node_counts_at_steps(512)
    assert found[0] == 0
    assert found[-1] == 512
    for drafted in range(512):
        low = max(count for count in found if count <= drafted)
        high = min(count for count in found if count >= drafted)
        between = {rows_for(count + 1) for count in range(low, high + 1)}
        assert len(between) == 1 or high - low == 1
