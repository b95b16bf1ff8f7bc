"""The shipped drafter, the built-in target and the packaged trace, held against each other.

The target is fetched once (98 MB) into the user's cache; without a network these tests are skipped.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from places import SHARED, TESTS

from simlab.arrays import Ints
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.policies.orders.best_first import best_first
from simlab.studies.prompts.prompts import prompts
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace, packaged_trace

torch = pytest.importorskip("torch")

from simlab.real_runner.drafters.dense import block_logits  # noqa: E402
from simlab.real_runner.models import Models, load_models  # noqa: E402
from simlab.real_runner.networks.drafter import PACKAGED  # noqa: E402
from simlab.real_runner.record.prompts import (  # noqa: E402
    Message,
    read_prompts,
    render,
)
from simlab.real_runner.record.texts import forward_text  # noqa: E402
from simlab.sampling.candidates import top_candidates  # noqa: E402

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def models() -> Models:
    try:
        return load_models("smollm2-135m", PACKAGED, "float32", "cpu")
    except ModelError as error:
        pytest.skip(f"the built-in target cannot be had here: {error}")


@pytest.fixture(scope="module")
def sample() -> SequenceRecord:
    """The shortest packaged text that still has forty roots."""
    trace = open_trace(packaged_trace())
    long_enough = [record for record in trace.sequences() if len(record.text) > 40]
    index = min(long_enough, key=lambda record: len(record.text)).index
    return next(trace.records([trace.draft_name()], [index]))


def test_the_packaged_prompts_are_those_of_the_packaged_trace(models: Models, tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    prompts("sample", out=path)
    first = [sequence for sequence in open_trace(packaged_trace()).sequences() if sequence.prompt.turn == 0]
    for record, prompt in zip(first, read_prompts(path), strict=True):
        assert record.prompt.prompt_id == prompt.prompt_id
        assert render(models.target.tokenizer, prompt.conversation, {}) == record.prompt.token_ids.tolist()


def live_log_probs(models: Models, record: SequenceRecord) -> list[np.ndarray]:
    """The laws ``[D, V]`` at each root, drafted one at a time with a context that grows by one token."""
    ids = np.concatenate([record.prompt.token_ids, record.text]).astype(np.int64)
    tokens, start = torch.from_numpy(ids), len(record.prompt.token_ids)
    features, _ = forward_text(models.target, tokens, models.block_drafter.config.target_layer_ids)
    context = models.block_drafter.context(features[None, :start])
    laws = []
    for root in range(start, len(tokens) - 1):
        logits = block_logits(
            models.block_drafter, models.target, tokens[root : root + 1], torch.tensor([root]), context
        )
        laws.append(logits[0].log_softmax(-1).numpy())
        context = context.extended(models.block_drafter.context(features[None, root : root + 1], root))
    return laws


def test_dense_rows_equal_rows_drafted_live(models: Models, sample: SequenceRecord) -> None:
    with torch.inference_mode():
        laws = live_log_probs(models, sample)
    (draft,) = sample.drafts.values()
    rows = list(draft.rows().rows())
    assert len(rows) == len(laws)
    for row, live in zip(rows, laws, strict=True):
        for depth in range(1, row.depth + 1):
            ids, log_probs = row.at(depth)
            assert np.abs(live[depth - 1][ids] - log_probs).max() < TOLERANCE
            # Where the order differs, the two candidates lie within the tolerance of each other.
            live_ids, live_log_probs_of = top_candidates(live[depth - 1 : depth], len(ids))
            moved = live_ids[0] != ids
            assert np.abs(live_log_probs_of[0][moved] - log_probs[moved]).max(initial=0) < TOLERANCE


def test_kept_candidates_give_the_trees_of_the_full_vocabulary(models: Models, sample: SequenceRecord) -> None:
    """On the rows as they were drafted live, cut by the recorder's rule."""
    from marginals import kept_marginals

    from simlab.real_runner.drafters.config import KeptCandidates

    with torch.inference_mode():
        laws = live_log_probs(models, sample)[::8]
    for law in laws:
        ids, on_grid = top_candidates(law, 4096)
        offsets = np.arange(0, ids.size + 1, ids.shape[1], dtype=np.int32)
        full = best_first(0, Marginals(ids.ravel(), on_grid.ravel(), offsets), 512)
        kept = best_first(0, kept_marginals(law, KeptCandidates(64, 512)), 512)
        for ours, theirs in zip(kept, full, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_targets_law_is_the_recorded_one(models: Models, sample: SequenceRecord) -> None:
    ids = np.concatenate([sample.prompt.token_ids, sample.text]).astype(np.int64)
    with torch.inference_mode():
        logits = models.target.model(torch.from_numpy(ids)[None]).logits[0].double()
    laws = logits.log_softmax(-1)[len(sample.prompt.token_ids) - 1 : -1].numpy()
    assert sample.tokens is not None
    emitted = laws[np.arange(len(sample.text)), sample.text]
    np.testing.assert_allclose(sample.tokens.log_prob, emitted, atol=TOLERANCE)
    top_two = np.sort(logits.numpy()[len(sample.prompt.token_ids) - 1 : -1], axis=1)[:, -2:]
    np.testing.assert_allclose(sample.tokens.decision_gap, top_two[:, 1] - top_two[:, 0], atol=1e-3)


def test_packaged_trace_is_whole_and_of_the_packaged_models(models: Models) -> None:
    report = check_trace(packaged_trace())
    assert report is not None
    manifest = open_trace(packaged_trace()).manifest
    assert manifest.target.digest == models.target.digest
    assert manifest.dtype == "float32"
    size = sum(path.stat().st_size for path in packaged_trace().iterdir())
    assert size <= 28_000_000
    texts = open_trace(packaged_trace()).sequences()
    assert len({record.prompt.dataset for record in texts}) == 4
    assert len({record.prompt.prompt_id for record in texts}) >= 32


def prefix_of(text: str) -> int:
    """The first eight bytes of the sha256 of a text, whose white space is made even."""
    return int.from_bytes(hashlib.sha256(" ".join(text.split()).encode()).digest()[:8], "little")


def first_question(models: Models, ids: Ints) -> str:
    """The first user message of a rendered prompt."""
    rendered = models.target.tokenizer.decode(ids.tolist())
    assert isinstance(rendered, str)
    return rendered.split("<|im_start|>user\n", 1)[1].split("<|im_end|>", 1)[0]


def test_no_prompt_of_the_sample_was_trained_on(models: Models) -> None:
    trained = np.load(TESTS / "data" / "training_prompts.npy", allow_pickle=False)
    of_gsm8k = (
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips "
        "did Natalia sell altogether in April and May?"
    )
    ids = render(models.target.tokenizer, (Message("user", of_gsm8k),), {})
    assert prefix_of(first_question(models, np.array(ids, np.int32))) in trained
    for record in open_trace(packaged_trace()).sequences():
        question = first_question(models, record.prompt.token_ids)
        assert prefix_of(question) not in trained, question


def test_no_evaluation_prompt_was_trained_on() -> None:
    if not (SHARED / "prompts").is_dir():
        pytest.skip("the training prompts are not here")
    trained = {
        json.loads(line)["turns"][0]
        for path in (SHARED / "prompts").glob("train_*.jsonl")
        for line in path.read_bytes().decode().split("\n")
        if line
    }
    texts = pl.read_parquet(SHARED / "text" / "smollm2_135m.parquet", columns=["prompt"])["prompt"].to_list()
    evaluation = {
        json.loads(line)["turns"][0]
        for name in ("gsm8k", "mbpp", "humaneval", "mt_bench")
        for line in (SHARED / "prompts" / f"{name}.jsonl").read_bytes().decode().split("\n")
        if line
    }
    assert not evaluation & (trained | set(texts))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_layers_that_the_shipped_drafter_reads_are_found(models: Models, tmp_path: Path) -> None:
    """Its weights under numbers that are one too high: on this target a neighbouring layer costs little."""
    from dataclasses import replace

    from simlab.real_runner.networks.drafter import load_drafter, save_drafter
    from simlab.real_runner.tap_offset import settle_tap_offset

    texts = [(record.prompt.token_ids, record.text) for record in open_trace(packaged_trace()).sequences()]
    own = models.block_drafter.config.target_layer_ids
    wrong = load_drafter(models.draft_folder, torch.float32)
    wrong.config = replace(wrong.config, target_layer_ids=tuple(tap + 1 for tap in own))
    save_drafter(wrong, tmp_path, torch.float32)
    tried = replace(models, drafter=load_drafter(tmp_path, torch.float32))
    settle_tap_offset(tried, "auto", texts)
    assert (tried.block_drafter.config.tap_offset, tried.block_drafter.config.target_layer_ids) == (0, own)
