"""DFlash checkpoints of PyPI speculators: made, saved and run by its own classes, and read and run by ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import released_speculators as released
import torch
from commands import output_of
from tiny_models import VOCAB_SIZE, make_target, write_prompts
from torch import Tensor

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.drafters.vocabulary import vocabulary_of
from simlab.real_runner.networks.dflash2.selector import load_selector
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.known import read_config
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.traces.reader import open_trace

try:
    released.speculators()
except ModuleNotFoundError:
    pytest.skip("speculators 0.9.0 is not installed: pip install --no-deps speculators==0.9.0", allow_module_level=True)

TOKENS = torch.arange(5, 75) % VOCAB_SIZE
ROOTS = [1, 2, 6, 13, 40, 60]
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 5}
KEPT = torch.arange(VOCAB_SIZE) % 3 != 1

PLAIN: Mapping[str, Any] = {}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": {"layers": SLIDING},
    "windows both ways": {"layers": SLIDING, "sliding_window_non_causal": True},
    "sliding without a window": {"layers": SLIDING | {"use_sliding_window": False}},
    "reduced": {"draft_vocab_size": int(KEPT.sum())},
    "from the root": {"sample_from_anchor": True},
    "all at once": {
        "layers": SLIDING | {"attention_bias": True, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
        "draft_vocab_size": int(KEPT.sum()),
        "sample_from_anchor": True,
        "block_size": 6,
    },
    "embedding and last layer": {"taps": (0, 2, 4)},
    "DFlash 2": {"kind": "DFlash2", "conv_kernel_size": 3, "conv_group_size": 4, "selector_rank": 6, "layers": SLIDING},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(place: Path) -> Target:
    return load_target(str(place), torch.float32)


def made(folder: Path, target: Target, settings: Mapping[str, Any] = PLAIN) -> released.Drafter:
    """Their drafter with the target's weights in it, and its files, which do not hold them."""
    drafter = released.made(**settings)
    if drafter.use_draft_vocab:
        released.give_vocabulary(drafter, KEPT)
    head = target.head.weight
    assert isinstance(head, Tensor)
    released.lend(drafter, target.embedding.weight, None if drafter.use_draft_vocab else head)
    released.save(drafter, folder)
    return drafter


def their_logits(drafter: released.Drafter, target: Target, roots: list[int]) -> Tensor:
    """``[R, D, V_d]``, from the hidden states that transformers gives."""
    with torch.inference_mode():
        hidden = target.model(TOKENS[None], output_hidden_states=True).hidden_states
        features = torch.cat([hidden[tap][0] for tap in drafter.target_layer_ids], dim=-1)
        found = released.logits_at(drafter, features, TOKENS, roots)
    return found if drafter.config.sample_from_anchor else found[:, 1:]


def our_logits(folder: Path, target: Target, roots: list[int]) -> Tensor:
    drafter = load_drafter(folder, torch.float32)
    features, _ = forward_text(target, TOKENS, drafter.config.target_layer_ids)
    return torch.cat([one for _, one in draft_logits(drafter, target, features, TOKENS, torch.tensor(roots), 4)])


@pytest.mark.parametrize("name", CASES)
def test_the_released_class_gives_the_same_logits(tmp_path: Path, target: Target, name: str) -> None:
    drafter = made(tmp_path, target, CASES[name])
    ours, other = our_logits(tmp_path, target, ROOTS), their_logits(drafter, target, ROOTS)
    assert ours.shape == other.shape
    assert (ours - other).abs().max() < 1e-4


@pytest.mark.parametrize("settings", [{"markov_head_type": "gated"}, {"sample_from_anchor": False}])
def test_a_chain_of_dspark_has_the_logits_of_their_class(
    tmp_path: Path, target: Target, settings: Mapping[str, Any]
) -> None:
    drafter = made(tmp_path, target, {"kind": "DSpark", "markov_rank": 6, **settings})
    with torch.inference_mode():
        hidden = target.model(TOKENS[None], output_hidden_states=True).hidden_states
    features = torch.cat([hidden[tap][0] for tap in drafter.target_layer_ids], dim=-1)
    ours, other = our_logits(tmp_path, target, ROOTS), released.chain_at(drafter, features, TOKENS, ROOTS)
    assert ours.shape == other.shape
    assert (ours - other).abs().max() < 1e-4
    assert "Markov head" in output_of("inspect", tmp_path)


@torch.inference_mode()
def test_a_selector_of_dflash2_is_read_and_scores_as_theirs_does(tmp_path: Path, target: Target) -> None:
    theirs = made(tmp_path, target, CASES["DFlash 2"] | {"selector_top_k": 5}).candidate_selector  # type: ignore[attr-defined]
    ours = load_selector(tmp_path, load_drafter(tmp_path, torch.float32), checkpoint_digest(tmp_path), torch.float32)
    assert (ours.config.rank, ours.config.top_k) == (6, 5)
    named = {
        f"{name}.weight" if name.endswith("codebook") else name: tensor for name, tensor in theirs.named_parameters()
    }
    assert named.keys() == dict(ours.named_parameters()).keys()
    assert all(torch.equal(tensor, named[name]) for name, tensor in ours.named_parameters())
    assert "one of 5 candidates" in output_of("inspect", tmp_path)


def test_rows_of_a_reduced_vocabulary_are_in_the_targets_ids(tmp_path: Path, target: Target) -> None:
    drafter = made(tmp_path, target, CASES["reduced"])
    ours = load_drafter(tmp_path, torch.float32)
    features, _ = forward_text(target, TOKENS, ours.config.target_layer_ids)
    columns = draft_columns(ours, target, features, TOKENS, 30, KeptCandidates(min_width=6, exact_budget=12))
    roots = list(range(30, len(TOKENS) - 5))
    law = their_logits(drafter, target, roots).double().log_softmax(-1)
    ids = KEPT.nonzero()[:, 0].tolist()
    offsets = np.concatenate([[0], np.cumsum(columns.counts.ravel())])
    for row, root in enumerate(roots):
        for depth in range(3):
            by_hand = sorted(((-float(value), ids[k]) for k, value in enumerate(law[row, depth])))
            start = offsets[row * 3 + depth]
            assert columns.ids[start : start + 6].tolist() == [token for _, token in by_hand[:6]]
            truth = int(TOKENS[root + 1 + depth])
            places = [token for _, token in by_hand]
            assert columns.true_rank[row, depth] == (places.index(truth) if truth in places else -1)
            if truth in places:
                assert columns.true_log_prob[row, depth] == pytest.approx(-by_hand[places.index(truth)][0], abs=1e-4)
    assert set(columns.true_rank[columns.valid & (columns.true_rank < 0)].tolist()) == {-1}


def test_record_replay_and_confirm_a_reduced_vocabulary(tmp_path: Path, target: Target, place: Path) -> None:
    """The whole way on the command line: rounds of the runner are those of its replay, the text is the target's."""
    made(tmp_path / "drafter", target, CASES["all at once"])
    prompts = write_prompts(tmp_path / "prompts.jsonl", 2)
    trace = tmp_path / "trace"
    models = ["--target", str(place), "--draft", str(tmp_path / "drafter" / "model.safetensors")]
    kept = ["--min-width", "16", "--exact-budget", "24", "--max-new-tokens", "20"]
    assert main(["record", *models, "--prompts", str(prompts), "--out", str(trace), *kept]) == 0
    assert main(["inspect", str(trace)]) == 0
    draft_set = open_trace(trace).manifest.draft_sets["dflash"]
    assert (draft_set.draft_vocab_size, draft_set.vocab_size, draft_set.depth) == (int(KEPT.sum()), VOCAB_SIZE, 6)
    assert draft_set.tap_offset == 0
    allowed = set(KEPT.nonzero()[:, 0].tolist())
    for record in open_trace(trace).records(["dflash"]):
        columns = record.drafts["dflash"]
        assert set(columns.ids.tolist()) <= allowed
        ahead = np.arange(len(record.text) - 1)[:, None] + np.arange(1, 7)
        truth = record.text[np.minimum(ahead, len(record.text) - 1)]
        outside = ~np.isin(truth, list(allowed))
        assert np.array_equal((columns.true_rank == -1) & columns.valid, outside & columns.valid)
    assert main(["replay", "--trace", str(trace), "-p", "ddtree:budget=8"]) == 0
    assert "exact" in output_of("confirm", "--trace", trace, "-p", "ddtree:budget=8", *models, "--out", tmp_path / "c")


def fields_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def test_what_contradicts_itself_or_is_another_kind_is_refused(tmp_path: Path, target: Target) -> None:
    made(tmp_path, target)
    fields = fields_of(tmp_path)
    proposal = {"speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}]}}
    spark = {"speculators_model_type": "dspark", "architectures": ["DSparkSpeculator"]}
    for changed, said in (
        ({**spark, "markov_head_type": "rnn"}, "of the type rnn"),
        ({**spark, "markov_rank": 0}, "no Markov head"),
        (
            {"speculators_model_type": "dflash2", "architectures": ["DFlash2DraftModel"], "draft_vocab_size": 7},
            "drafts 7 of 101 tokens",
        ),
        ({"speculators_model_type": "eagle3"}, "EAGLE-3"),
        ({"speculators_model_type": "xpress"}, "the mix over earlier slots of xPress"),
        ({"speculators_model_type": "news"}, "'news'"),
        ({"target_hidden_size": 64}, "target 64"),
        ({"transformer_layer_config": None}, "transformer_layer_config"),
        ({"mask_token_id": None}, "mask_token_id"),
        ({"aux_hidden_state_layer_ids": None}, "aux_hidden_state_layer_ids"),
        ({"aux_hidden_state_layer_ids": [-1]}, "do not fit"),
        (proposal, "promises 4 drafted tokens"),
    ):
        with pytest.raises(ModelError, match=said) as caught:
            read_config(fields | changed)
        assert "\n" not in str(caught.value)
    assert read_config(fields | proposal | {"sample_from_anchor": True}).depth == 4


def test_maps_of_a_vocabulary() -> None:
    mask = np.array([True, False, True, True])
    offsets = np.array([0, 1, 1])
    assert vocabulary_of(offsets, mask, 3, 4)[0].tolist() == [0, 2, 3]
    assert vocabulary_of(offsets, None, 3, 4)[0].tolist() == [0, 2, 3]
    assert vocabulary_of(None, mask, 3, 4)[0].tolist() == [0, 2, 3]
    for wrong, said in (
        ((np.array([0, 2, 3]), None, 3, 4), "leaves the target's vocabulary"),
        ((np.array([0, -1, 1]), None, 3, 4), "names 2 tokens"),
        ((offsets, np.roll(mask, 1), 3, 4), "different tokens"),
        ((None, None, 3, 4), "no d2t"),
        ((offsets, mask, 2, 4), "config.json says 2"),
    ):
        with pytest.raises(ModelError, match=said):
            vocabulary_of(*wrong)
