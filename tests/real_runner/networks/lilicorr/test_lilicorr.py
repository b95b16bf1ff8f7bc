"""LiLiCorr as released: its scores are those of a loop over candidates; what cannot run is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import sglang_heads
import torch
from random_lattice import OWN, TOP_K, Scores, make_lattice
from safetensors.torch import load_file, save_file
from tiny_models import HIDDEN_SIZE, VOCAB_SIZE, make_target, write_prompts

from simlab.arrays import Doubles
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.config import Convolution
from simlab.real_runner.drafters.dense import draft_states, logits_of
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.lilicorr.config import lattice_from_json
from simlab.real_runner.networks.lilicorr.head import LatticeHead, LatticeProducer
from simlab.real_runner.networks.loading import load_producer
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.record.additions import ChannelOptions, add
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.studies.confirm.confirm import confirm
from simlab.studies.inspect.inspect import inspect

OF_ALL = "edges=transitions,channel=lilicorr,previous=4,top_k=4"
POLICIES = [f"tree:budget=3,{OF_ALL},order=expand-parent,width=1", f"tree:budget=6,{OF_ALL}"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("lilicorr") / "target")


@pytest.mark.parametrize(("width", "block"), [(12, 4), (0, 4), (12, 3)])
@torch.inference_mode()
def test_rows_are_those_of_the_formulas(target: Path, tmp_path: Path, width: int, block: int) -> None:
    """At roots of a random text, also with a head as wide as its drafter, and in a shorter block."""
    place = make_lattice(tmp_path / "lattice", lilicorr_hidden_size=width)
    models = load_models(str(target), str(place), "float32", "cpu", block=block)
    drafter, depth = models.block_drafter, block - 1
    tokens = torch.from_numpy(np.random.default_rng(0).integers(5, VOCAB_SIZE, 14))
    features = torch.randn(14, 3 * HIDDEN_SIZE, generator=torch.Generator().manual_seed(1))
    roots = torch.arange(4, 12, 2)
    ((_, states),) = draft_states(drafter, models.target, features, tokens, roots, len(roots))
    first = logits_of(drafter, models.target, states.after).log_softmax(-1).topk(TOP_K)
    base = BaseCandidates(first.indices.numpy().astype(np.int32), first.values.numpy())
    made = load_producer(place, {}, torch.float32, drafter, checkpoint_digest(place))(drafter, models.target)
    assert isinstance(made, LatticeProducer)
    found = made.rows(states, tokens[roots].numpy().astype(np.int32), base).rows
    shape = (len(roots), 1 + (depth - 1) * TOP_K, TOP_K)
    ids, log_probs = found.ids.reshape(shape), found.log_probs.reshape(shape)
    scores, read = Scores(place), drafter.hidden_norm(drafter.fc(features)).double().numpy()
    table = models.target.embedding.weight.double().numpy()
    for number, root in enumerate(roots.tolist()):
        theirs: Doubles = base.log_probs[number].astype(np.float64)
        start, pairs = scores.of_lattice(
            table[base.ids[number]], theirs, states.after[number].double().numpy(), read[root - 1]
        )
        rows = [(0, start), *((slot + 1, one) for slot, pair in enumerate(pairs) for one in pair)]
        for row, (slot, score) in enumerate(rows):
            wanted = score - np.logaddexp.reduce(score) + np.log(np.exp(theirs[slot]).sum())
            said = dict(zip(base.ids[number, slot].tolist(), wanted.tolist(), strict=True))
            assert ids[number, row].tolist() == sorted(said, key=lambda one: -said[one])
            np.testing.assert_allclose(log_probs[number, row], [said[one] for one in ids[number, row]], atol=1e-4)


def test_a_trace_holds_the_rows_and_the_runner_makes_them(target: Path, tmp_path: Path) -> None:
    place, prompts = make_lattice(tmp_path / "lattice"), write_prompts(tmp_path / "prompts.jsonl", 2)
    out = record(RecordOptions(str(target), str(place), out=tmp_path / "trace", prompts=prompts, max_new_tokens=16))
    added = add(ChannelOptions(str(out), "lilicorr", str(place)))
    wanted = {"depth": 3, "previous": TOP_K, "top_k": TOP_K, "order": "base-rank", "candidates": TOP_K}
    assert added.manifest.channels["lilicorr"].settings == wanted
    found = confirm(policies=POLICIES, trace=out, out=tmp_path / "confirm", draft=str(place), repeats=1)
    assert "Rounds and rows are those of the trace: no difference." in str(found)


def test_what_is_there_is_said(tmp_path: Path) -> None:
    said = str(inspect(make_lattice(tmp_path / "lattice", projector_type="lilicorr", lilicorr_enabled=True)))
    assert "LiLiCorr, as sglang 0.5.23 reads it" in said
    assert "one of 4 candidates given the one before it; 2 layers of width 12 over all" in said


@pytest.mark.parametrize(
    ("own", "said"),
    [
        *(({name: None}, f"no '{name}'") for name in OWN),
        ({"lilicorr_candidate_topk": 3}, "power of two of at most 16; got 3"),
        ({"lilicorr_candidate_topk": 32}, "power of two of at most 16; got 32"),
        ({"lilicorr_num_heads": 5}, "12 numbers do not split into 5 heads"),
        ({"lilicorr_vector_eps": 0}, "vector_eps must be from"),
        ({"lilicorr_factor_dim": 7}, "do not fit"),
        ({"lilicorr_num_layers": 3}, "lacks layers.2"),
        ({"lilicorr_enabled": False}, "its lattice head is off"),
        ({"projector_type": "domino"}, "projector_type='domino'"),
        ({"conv_kernel_size": 2}, "has conv_kernel_size and conv_group_size"),
        ({"selector_rank": 2}, "selector_rank=2, which simlab does not know"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, own: dict[str, object], said: str) -> None:
    place = make_lattice(tmp_path / "lattice")
    fields = json.loads((place / "config.json").read_text())
    inner = {name: one for name, one in (fields["dflash_config"] | own).items() if one is not None}
    (place / "config.json").write_text(json.dumps(fields | {"dflash_config": inner}))
    with pytest.raises(ModelError, match=said):
        checked_parts(place)


def test_a_longer_block_and_fewer_candidates_are_refused(target: Path, tmp_path: Path) -> None:
    place = make_lattice(tmp_path / "lattice")
    drafter = load_models(str(target), str(place), "float32", "cpu", block=5).block_drafter
    with pytest.raises(ModelError, match="knows blocks of 4, and the drafter's block here is 5"):
        load_producer(place, {}, torch.float32, drafter, checkpoint_digest(place))
    with pytest.raises(ModelError, match="chooses among its 4 candidates, so top_k is 4"):
        load_producer(place, {"top_k": 2}, torch.float32, drafter, checkpoint_digest(place))


def test_its_drafter_may_have_convolutions(tmp_path: Path) -> None:
    place = make_lattice(tmp_path / "lattice", conv_kernel_size=2, conv_group_size=8)
    tensors = load_file(place / "model.safetensors")
    for name in ("attention_conv", "mlp_conv"):
        for layer in range(2):
            tensors[f"layers.{layer}.{name}.base_kernel"] = torch.ones(2, 2, HIDDEN_SIZE)
            tensors[f"layers.{layer}.{name}.kernel_projection.weight"] = torch.ones(HIDDEN_SIZE // 2, HIDDEN_SIZE)
    save_file(tensors, place / "model.safetensors")
    assert load_drafter(place, torch.float32).config.convolution == Convolution(2, 8)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [12, 0])
@torch.inference_mode()
def test_sglangs_own_head_says_the_same(tmp_path: Path, width: int) -> None:
    place = make_lattice(tmp_path / "lattice", lilicorr_hidden_size=width)
    fields = json.loads((place / "config.json").read_text())
    config = lattice_from_json(fields)
    assert config is not None
    stored = load_file(place / "model.safetensors").items()
    weights = {name.removeprefix("lilicorr."): one for name, one in stored if name.startswith("lilicorr.")}
    head, generator, num, depth = LatticeHead(config), torch.Generator().manual_seed(3), 100, 3
    head.load_state_dict(weights)
    given = {
        "embedded": torch.randn(num, depth, TOP_K, HIDDEN_SIZE, generator=generator),
        "log_probs": -torch.rand(num, depth, TOP_K, generator=generator).cumsum(-1),
        "after": torch.randn(num, depth, HIDDEN_SIZE, generator=generator),
        "anchor": torch.randn(num, HIDDEN_SIZE, generator=generator),
    }
    theirs = sglang_heads.run(tmp_path, "lilicorr", fields, weights, given)
    first, pairs = head(given["embedded"], given["log_probs"], given["after"], given["anchor"])
    torch.testing.assert_close(first, theirs["first"], atol=2e-5, rtol=0)
    torch.testing.assert_close(pairs, theirs["pairs"], atol=2e-5, rtol=0)
    chain = [first.argmax(-1)]
    for slot in range(depth - 1):
        chain.append(pairs[torch.arange(num), slot, chain[-1]].argmax(-1))
    assert torch.equal(torch.stack(chain, 1), theirs["chain"])
