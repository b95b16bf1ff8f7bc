"""Replay is the runner: a small part of `make verify-real`, on tiny models and on the real ones."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_trees
import tiny_models
import torch
from captured_rehearsals import captured
from depth import THOROUGH, some
from made_up_artefacts import FullArtefacts
from policy_variants import VARIANTS, every_policy
from recorded_texts import record_texts
from replay_is_the_runner import (
    DRAFT,
    PLAIN,
    POLICIES,
    Checked,
    as_loaded,
    check_prompt,
    checked_from,
    cut,
    engine_unequal,
    faults_of,
    sampling_at,
    verdict_on,
    with_true_ranks,
)

from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.policies import POLICIES as NAMED
from simlab.policies.parsing.describe import describe_policies
from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.own_rows import own_sequence
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.networks.drafter import PACKAGED, load_drafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.trainer import training_dtype
from simlab.studies.confirm.confirm import artefacts_of_models
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.reader import open_trace, packaged_trace

NUM_TOKENS = 24
FEW_TOKENS = 8


def tiny(folder: Path, family: str, dtype: torch.dtype) -> tuple[Models, Target]:
    """A pair in a dtype, and its target in float32."""
    target, drafter = tiny_models.make_pair(folder, family)
    models = Models(load_target(str(target), dtype), load_drafter(drafter, dtype), drafter, "")
    return models, load_target(str(target), torch.float32)


def tiny_prompts(num: int) -> list[Prompt]:
    generator = np.random.default_rng(11)
    lengths = range(5, 5 + 9 * num, 9)
    return [
        random_trees.prompt_of(generator.integers(5, tiny_models.VOCAB_SIZE, size=length).tolist(), f"p{length}")
        for length in lengths
    ]


@pytest.mark.parametrize(
    ("family", "dtype", "temperature"),
    some([*itertools.product(["llama", "qwen3"], [torch.float32, torch.bfloat16], [0.0, 1.0])], quick=3),
)
def test_on_tiny_models(tmp_path: Path, family: str, dtype: torch.dtype, temperature: float) -> None:
    models, target32 = tiny(tmp_path, family, dtype)
    sampling = sampling_at(temperature)
    records = record_texts(models, tiny_prompts(4), sampling, NUM_TOKENS)
    is_reference = dtype == torch.float32
    found = [check_prompt(models, target32, record, sampling, NUM_TOKENS, is_reference) for record in records]
    assert_no_faults(found, models, NUM_TOKENS)
    assert [run.label for run in found[0].runs] == [named.label for named in POLICIES]
    assert all(
        run.num_rounds < len(run.text) for checked in found for run in checked.runs if run.label == "ddtree:budget=64"
    )
    if is_reference:
        assert_the_record_was_met(found)


def assert_no_faults(found: Sequence[Checked], models: Models, max_new_tokens: int) -> None:
    bound, stops = max(checked.bound for checked in found), models.target.stop_token_ids
    assert [fault for checked in found for fault in faults_of(checked, bound, stops, max_new_tokens)] == []
    for checked in found:
        assert checked_from(checked.to_json()) == checked


def assert_the_record_was_met(found: Sequence[Checked]) -> None:
    """In float32 the text is the recorded one, and there were rounds and rows to compare."""
    for checked in found:
        for run in checked.runs:
            assert run.against is not None
            assert not run.against.parting
            assert run.against.num_rounds == run.num_rounds - run.against.num_unpaired
            assert run.against.num_rows == (0 if run.label == PLAIN else run.num_rounds)


@pytest.fixture(scope="module")
def models() -> Models:
    try:
        return load_models("smollm2-135m", PACKAGED, "float32", "cpu")
    except ModelError as error:
        pytest.skip(f"the built-in target cannot be had here: {error}")


@pytest.fixture(scope="module")
def records() -> list[SequenceRecord]:
    """One packaged text of each data set, of those whose first tokens the drafter meets best."""
    trace = open_trace(packaged_trace())
    indices = {record.prompt.dataset: record.index for record in reversed(trace.sequences())}
    return list(trace.records([trace.draft_name()], list(indices.values())))


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_on_the_real_models(models: Models, records: list[SequenceRecord], temperature: float) -> None:
    """In float32; at temperature 0 against the packaged trace, above it against a record made here, of two texts."""
    sampling = sampling_at(temperature)
    if temperature == 0:
        references = [cut(record, NUM_TOKENS) for record in records]
    else:
        records = records[:2]
        references = record_texts(models, [record.prompt for record in records], sampling, NUM_TOKENS)
    target32, policies = models.target, parse_policies(["ar", "chain", "ddtree:budget=32"])
    found = [
        check_prompt(models, target32, reference, sampling, NUM_TOKENS, True, policies) for reference in references
    ]
    assert {checked.dataset for checked in found} == {record.prompt.dataset for record in records}
    assert_no_faults(found, models, NUM_TOKENS)
    assert_the_record_was_met(found)
    bound = max(checked.bound for checked in found)
    for checked in found:
        for run in checked.runs:
            verdict = verdict_on(checked, run.label, bound, models.target.stop_token_ids, NUM_TOKENS)
            assert str(verdict) == "exact"
        assert (
            checked.run("ddtree:budget=32").num_rounds < checked.run("chain").num_rounds < checked.run(PLAIN).num_rounds
        )


def test_every_policy_of_the_table_is_verified() -> None:
    """A policy of a later day too; and no variant is of a policy that is gone."""
    assert set(VARIANTS) <= set(NAMED)
    assert {policy.name for policy in every_policy(FullArtefacts())} == set(NAMED)
    assert every_policy(FullArtefacts(), {})[0].label == PLAIN


def test_every_switch_of_every_policy_is_verified() -> None:
    """A setting that is a word or yes and no chooses ways through the code; a name of a file or channel does not."""
    names = {"cost", "table", "ngram", "target_config", "channel", "channels"}
    for policy in describe_policies():
        switches = {field.name for field in policy.fields if field.kind in ("str", "bool")} - names
        named = {pair.partition("=")[0] for settings in VARIANTS.get(policy.name, ()) for pair in settings.split(",")}
        assert switches <= named, f"{policy.name}: name {', '.join(switches - named)} in its `variants`"


@pytest.mark.parametrize("run_as", [as_loaded, captured])
def test_every_policy_on_tiny_models(tmp_path: Path, run_as: Callable[[Models], Models]) -> None:
    """At temperature 1 a random drafter is seldom right, and at 0 texts of random models repeat themselves.

    In a quick run every other policy runs as loaded, and the others in captured passes.
    """
    models, target32 = tiny(tmp_path, "qwen3", torch.bfloat16)
    plain, *drafting = every_policy(FullArtefacts())
    policies = [plain, *(drafting if THOROUGH else drafting[int(run_as is captured) :: 2])]
    for temperature in some((1.0, 0.0) if run_as is as_loaded else (0.0, 1.0)):
        sampling = sampling_at(temperature)
        record = record_texts(models, tiny_prompts(1), sampling, NUM_TOKENS)[0]
        found = check_prompt(
            models, target32, record, sampling, NUM_TOKENS, against=False, policies=policies, run_as=run_as
        )
        assert_no_faults([found], models, NUM_TOKENS)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dtype", "temperature"), [("float32", 0.0), ("bfloat16", 1.0)], ids=["float32", "bfloat16"])
def test_every_policy_on_the_real_models(
    models: Models, records: list[SequenceRecord], dtype: str, temperature: float
) -> None:
    """A few tokens each, with the prices, 3-gram and tables that come with simlab; all variants in the faster dtype."""
    is_faster = getattr(torch, dtype) == training_dtype("cpu")
    variants = VARIANTS if is_faster else {name: settings[:1] for name, settings in VARIANTS.items()}
    ran = models if dtype == "float32" else load_models("smollm2-135m", PACKAGED, dtype, "cpu")
    record, sampling = min(records, key=lambda one: len(one.prompt.token_ids)), sampling_at(temperature)
    policies = every_policy(artefacts_of_models(None, open_trace(packaged_trace()), None, dtype), variants)
    found = check_prompt(ran, models.target, record, sampling, FEW_TOKENS, against=False, policies=policies)
    assert_no_faults([found], ran, FEW_TOKENS)
    assert {policy.name for policy in policies} == set(NAMED)
    assert any(run.num_rounds < FEW_TOKENS - 1 for run in found.runs)


def test_an_engine_that_accepts_other_tokens_is_named(tmp_path: Path) -> None:
    """It is told that no true token was kept, and then its rounds are not those of the trees."""
    models, _ = tiny(tmp_path, "llama", torch.float32)
    (named,) = parse_policies(["calibrated:stop=survival,threshold=0"], FullArtefacts())
    decoded = decode(models, named.policy, tiny_prompts(1)[0], sampling_at(0.0), NUM_TOKENS)
    assert decoded.totals.accepted > 0
    own = own_sequence(decoded)
    assert engine_unequal(named.policy, with_true_ranks(own)) == ""
    assert "calibrated:stop=survival" in engine_unequal(named.policy, own)


def test_a_cut_record_is_the_record_of_a_lower_limit(tmp_path: Path) -> None:
    models, _ = tiny(tmp_path, "llama", torch.float32)
    sampling = sampling_at(0.0)
    long, short = (record_texts(models, tiny_prompts(3), sampling, num) for num in (30, 12))
    for record, other in zip(long, short, strict=True):
        found = cut(record, 12)
        assert found.text.tolist() == other.text.tolist()
        assert found.stop_reason == other.stop_reason
        ours, theirs = found.recorded(DRAFT), other.recorded(DRAFT)
        assert ours.rows is not None
        assert theirs.rows is not None
        assert ours.rows.true_ranks.tolist() == theirs.rows.true_ranks.tolist()
        assert ours.rows.counts.tolist() == theirs.rows.counts.tolist()
        assert ours.rows.ids.tolist() == theirs.rows.ids.tolist()


def test_what_must_not_be_is_named(tmp_path: Path) -> None:
    """Another record, another text, rounds of other rows: each is a fault."""
    models, target32 = tiny(tmp_path, "llama", torch.float32)
    sampling = sampling_at(0.0)
    (record,) = record_texts(models, tiny_prompts(1), sampling, NUM_TOKENS)
    stops = models.target.stop_token_ids

    def faults(checked: Checked) -> list[str]:
        return faults_of(checked, checked.bound, stops, NUM_TOKENS)

    sound = check_prompt(models, target32, record, sampling, NUM_TOKENS, against=True)
    assert faults(sound) == []

    shifted = record.drafts[DRAFT]
    moved = replace(shifted, ids=np.roll(shifted.ids, 1))
    other = check_prompt(models, target32, replace(record, drafts={DRAFT: moved}), sampling, NUM_TOKENS, against=True)
    assert any("against the record: round at 0" in fault for fault in faults(other))
    text = record.text.copy()
    text[3] += 1
    parted = check_prompt(models, target32, replace(record, text=text), sampling, NUM_TOKENS, against=True)
    assert any("text against the record: token 3" in fault for fault in faults(parted))

    run = sound.run("chain")
    wrong = (run.text[0] + 1, *run.text[1:])
    changed = replace(
        run, text=wrong, others=((0, run.text[0], 2.5),), unequal="root 1 in the run", engine="5 in the engine"
    )
    found = faults(replace(sound, runs=tuple(changed if one.label == "chain" else one for one in sound.runs)))
    assert any("loses by 2.5 against float32" in fault for fault in found)
    assert any("own rows: root 1 in the run" in fault for fault in found)
    assert any("own rows, engine: 5 in the engine" in fault for fault in found)
