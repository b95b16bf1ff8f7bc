"""DFlash 2 as released: states, scores and chains are those of the authors' class; what cannot run is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from released_dflash import their_block
from released_dflash2 import OWN, RANK, TOP_K, make_dflash2, released_dflash2
from safetensors.torch import load_file, save_file
from tiny_models import VOCAB_SIZE, make_drafter, make_target, write_prompts

from simlab.errors import ModelError
from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.config import Convolution
from simlab.real_runner.drafters.dense import block_states, logits_of
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.dflash2.config import DFLASH2, SelectorConfig
from simlab.real_runner.networks.dflash2.selector import Selector, SelectorProducer, load_selector, save_selector
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.producer import block_stage
from simlab.real_runner.record.additions import ChannelOptions, add
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.studies.confirm.confirm import confirm
from simlab.studies.inspect.inspect import inspect
from simlab.traces.reader import open_trace

CHAIN = "tree:budget=3,edges=transitions,channel=dflash2,previous=5,top_k=5,order=expand-parent,width=1"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dflash2")
    return make_target(folder / "target"), make_dflash2(folder / "drafter")


def made(pair: tuple[Path, Path]) -> SelectorProducer:
    models = load_models(str(pair[0]), str(pair[1]), "float32", "cpu")
    drafter = models.block_drafter
    selector = load_selector(pair[1], drafter, checkpoint_digest(pair[1]), torch.float32)
    reach = DFLASH2.reach(read(pair[1]), {}, True)
    assert isinstance(reach, HeadReach)
    return SelectorProducer(drafter, models.target, reach, selector)


def read(place: Path) -> dict[str, object]:
    fields: dict[str, object] = json.loads((place / "config.json").read_text())
    return fields


@torch.inference_mode()
def test_states_scores_and_chains_are_those_of_the_released_class(pair: tuple[Path, Path]) -> None:
    """At many roots of a random text: block by block as their script runs it, and all at once as ours does."""
    theirs, ours = released_dflash2(pair[1]), made(pair)
    drafter, target = block_stage(ours.drafter), ours.target
    assert drafter.config.convolution == Convolution(3, 4)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(5, VOCAB_SIZE, 30))
    taps = len(drafter.config.target_layer_ids) * drafter.config.hidden_size
    features = torch.randn(1, 30, taps, generator=torch.Generator().manual_seed(1))
    roots = torch.arange(4, 28)
    context = drafter.context(features)
    found = block_states(drafter, target, tokens[None, roots][0], roots, context)
    chains = []
    for number, root in enumerate(roots.tolist()):
        ids = torch.full((1, drafter.config.block_size), drafter.config.mask_token_id)
        ids[0, 0] = tokens[root]
        embedded = target.embedding(ids) * drafter.config.input_embedding_scale
        states = their_block(theirs, features[:, :root], embedded, root)[:, 1:]
        assert torch.allclose(found.after[number], states[0], atol=1e-4)
        logits = theirs.compute_logits(states, target.head)
        assert torch.allclose(logits_of(drafter, target, found.after[number]), logits[0].float(), atol=1e-4)
        path, *_ = theirs.propose(states, tokens[root][None], target.head, 0.0)
        chains.append(path[0].tolist())
    # The rows of our channel, walked from the root by their first candidates.
    log_probs = logits_of(drafter, target, found.after.flatten(0, 1)).log_softmax(-1).view(len(roots), -1, VOCAB_SIZE)
    first = log_probs.topk(TOP_K, dim=-1)
    base = BaseCandidates(first.indices.numpy().astype(np.int32), first.values.numpy())
    columns = ours.rows(found, tokens[roots].numpy().astype(np.int32), base)
    depth = drafter.config.depth
    rows = columns.rows.ids.reshape(len(roots), 1 + (depth - 1) * TOP_K, TOP_K)
    scores = columns.rows.log_probs.reshape(rows.shape)
    for number, chain in enumerate(chains):
        row, walked = 0, []
        for at in range(depth):
            walked.append(int(rows[number, row][0]))
            if at + 1 < depth:
                row = 1 + at * TOP_K + base.ids[number, at].tolist().index(walked[-1])
        assert walked == chain
        # A row has the mass of the drafter's own candidates of its depth.
        np.testing.assert_allclose(np.exp(scores[number, 0]).sum(), np.exp(base.log_probs[number, 0]).sum(), rtol=1e-3)


def test_a_trace_holds_the_rows_and_the_runner_makes_them(pair: tuple[Path, Path], tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", 2)
    out = record(RecordOptions(str(pair[0]), str(pair[1]), out=tmp_path / "trace", prompts=prompts, max_new_tokens=16))
    add(ChannelOptions(str(out), "dflash2", str(pair[1])))
    info = open_trace(out).manifest.channels["dflash2"]
    assert info.settings == {"depth": 3, "previous": 5, "top_k": 5, "order": "base-rank", "candidates": 5}
    policies = [CHAIN, "tree:budget=6,edges=transitions,channel=dflash2,previous=5,top_k=5"]
    (policy,) = parse_policies([CHAIN])
    assert policy.policy.budget == 3
    found = confirm(policies=policies, trace=out, out=tmp_path / "confirm", draft=str(pair[1]), repeats=1)
    assert "Rounds and rows are those of the trace: no difference." in str(found)


def test_a_selector_alone_belongs_to_its_drafter(pair: tuple[Path, Path], tmp_path: Path) -> None:
    plain = make_drafter(tmp_path / "plain")
    digest, drafter = checkpoint_digest(plain), load_drafter(plain, torch.float32)
    selector = Selector(SelectorConfig(drafter.config.hidden_size, VOCAB_SIZE, 4, 3, digest))
    save_selector(selector, tmp_path / "alone", torch.float32)
    loaded = load_selector(tmp_path / "alone", drafter, digest, torch.float32)
    assert loaded.config == selector.config
    assert all(torch.equal(*both) for both in zip(loaded.parameters(), selector.parameters(), strict=True))
    assert "a selector alone" in str(inspect(tmp_path / "alone"))
    with pytest.raises(ModelError, match="belongs to the drafter of sha256"):
        load_selector(tmp_path / "alone", drafter, "0" * 64, torch.float32)
    with pytest.raises(ModelError, match="selector of DFlash 2 alone.*name that drafter"):
        load_drafter(tmp_path / "alone", torch.float32)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"selector_rank": None}, "no 'selector_rank'"),
        ({"conv_kernel_size": None}, "has conv_kernel_size and conv_group_size"),
        ({"conv_group_size": 5}, "do not split into groups of 5"),
        ({"selector_top_k": 0}, "top_k must be at least 1"),
        ({"conv_bias": True}, "conv_bias=True, which simlab does not know"),
        ({"selector_rank": RANK + 1}, "do not fit"),
    ],
)
def test_what_cannot_be_run_is_refused(
    pair: tuple[Path, Path], tmp_path: Path, own: dict[str, object], said: str
) -> None:
    fields = read(pair[1])
    inner = {name: value for name, value in (OWN | own).items() if value is not None}
    whole = fields["dflash_config"]
    assert isinstance(whole, dict)
    kept = {name: value for name, value in whole.items() if name not in OWN}
    (tmp_path / "config.json").write_text(json.dumps(fields | {"dflash_config": kept | inner}))
    save_file(load_file(pair[1] / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=said):
        checked_parts(tmp_path)


def test_fewer_candidates_are_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ModelError, match="chooses among its 5 candidates, so top_k is 5; leave it out"):
        DFLASH2.reach(read(pair[1]), {"top_k": 3}, True)
