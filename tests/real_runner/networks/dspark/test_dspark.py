"""DSpark as released: the chain and the laws beside it are those of the formulas; what cannot run is refused."""

from pathlib import Path

import numpy as np
import pytest
import sglang_heads
import torch
from decoded_batches import decode_batch
from depth import some
from random_spark import RANK, make_spark
from safetensors.torch import load_file
from systems import GREEDY, MOST, prompts_for, spark_models
from tiny_models import HIDDEN_SIZE, VOCAB_SIZE, make_drafter, make_target, write_prompts

from simlab.errors import ModelError, UsageError
from simlab.policies.named.chain import Chain
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.drafters.dense import BlockStates, block_states, drafted_logits, logits_of
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.dspark.head import MarkovProducer
from simlab.real_runner.networks.loading import load_producer
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.parts import checked_parts
from simlab.studies.confirm.confirm import confirm
from simlab.studies.export.export import export
from simlab.studies.inspect.inspect import inspect
from simlab.studies.record import record
from simlab.studies.replay.replay import replay

CHAIN = "tree:budget=4,edges=transitions,channel=dspark,previous=5,top_k=5,order=expand-parent,width=1"
KINDS = ("vanilla", "gated")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("dspark") / "target")


def law(base: np.ndarray, state: np.ndarray, tensors: dict[str, np.ndarray], above: int) -> np.ndarray:
    """Log-probabilities of a slot by its base logits, its state and the token above, element by element."""
    row = tensors["markov_head.markov_w1.weight"][above]
    if "markov_head.gate_proj.weight" in tensors:
        gate, bias = (tensors[f"markov_head.gate_proj.{name}"] for name in ("weight", "bias"))
        read = [*state, *row]
        opened = [sum(gate[i, j] * read[j] for j in range(len(read))) + bias[i] for i in range(RANK)]
        row = np.array([value / (1 + np.exp(-one)) for value, one in zip(row, opened, strict=True)])
    second = tensors["markov_head.markov_w2.weight"]
    logits = np.array([base[v] + sum(second[v, i] * row[i] for i in range(RANK)) for v in range(VOCAB_SIZE)])
    found: np.ndarray = logits - np.logaddexp.reduce(logits)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("from_root", [True, False])
@torch.inference_mode()
def test_chains_and_laws_are_those_of_the_formulas(target: Path, tmp_path: Path, kind: str, from_root: bool) -> None:
    place = make_spark(tmp_path / "spark", kind, sample_from_anchor=None if from_root else False)
    models = load_models(str(target), str(place), "float32", "cpu")
    drafter, depth = models.block_drafter, 4
    config = drafter.config
    assert (config.depth, config.block_size, config.is_chain) == (depth, depth + (not from_root), True)
    tensors = {name: one.double().numpy() for name, one in load_file(place / "model.safetensors").items()}
    tokens = torch.from_numpy(np.random.default_rng(0).integers(5, VOCAB_SIZE, 14))
    features = torch.randn(1, 14, 3 * HIDDEN_SIZE, generator=torch.Generator().manual_seed(1))
    roots = torch.arange(4, 12, 2)
    states = block_states(drafter, models.target, tokens[roots], roots, drafter.context(features))
    base = logits_of(drafter, models.target, states.after).double().numpy()
    found = drafted_logits(drafter, models.target, states.after, tokens[roots]).log_softmax(-1).numpy()
    after, first = states.after.double().numpy(), []
    for number, root in enumerate(tokens[roots].tolist()):
        above = root
        for slot in range(depth):
            said = law(base[number, slot], after[number, slot], tensors, above)
            np.testing.assert_allclose(found[number, slot], said, atol=1e-4)
            first.append(np.argsort(-said, kind="stable")[:5])
            above = int(first[-1][0])
    ids = np.array(first).reshape(len(roots), depth, 5).astype(np.int32)
    with_models = load_producer(place, {"previous": 5, "top_k": 6}, torch.float32, drafter, checkpoint_digest(place))
    made = with_models(drafter, models.target)
    assert isinstance(made, MarkovProducer)
    root_ids = tokens[roots].numpy().astype(np.int32)
    rows = made.rows(states, root_ids, BaseCandidates(ids, np.zeros(ids.shape, np.float32))).rows
    shape = (len(roots), 1 + (depth - 1) * 5, 6)
    for number in range(len(roots)):
        cells = [(0, int(root_ids[number]))]
        cells += [(slot, int(one)) for slot in range(1, depth) for one in ids[number, slot - 1]]
        for row, (slot, above) in enumerate(cells):
            said = law(base[number, slot], after[number, slot], tensors, above)
            assert rows.ids.reshape(shape)[number, row].tolist() == np.argsort(-said, kind="stable")[:6].tolist()
            np.testing.assert_allclose(rows.log_probs.reshape(shape)[number, row], np.sort(said)[:-7:-1], atol=1e-4)


@pytest.mark.parametrize("kind", some(KINDS[::-1]))
def test_a_trace_holds_chain_and_rows_and_the_runner_makes_them(target: Path, tmp_path: Path, kind: str) -> None:
    place, prompts = make_spark(tmp_path / "spark", kind), write_prompts(tmp_path / "prompts.jsonl", 2)
    trace = record(str(target), str(place), out=tmp_path / "trace", prompts=prompts, max_new_tokens=16)
    (kept,), (info,) = trace.manifest.draft_sets.values(), trace.manifest.channels.values()
    assert (kept.is_chain, kept.is_head, kept.depth) == (True, False, 4)
    assert info.settings == {"depth": 4, "previous": 16, "top_k": 16, "order": "base-rank"}
    policies = ["chain", CHAIN, "tree:budget=6,edges=transitions,channel=dspark,previous=5,top_k=5"]
    found = confirm(policies=policies, trace=tmp_path / "trace", out=tmp_path / "confirm", draft=str(place), repeats=1)
    assert "Rounds and rows are those of the trace: no difference." in str(found)
    lines = [export(engine, "chain:length=3", trace=tmp_path / "trace").text for engine in ("sglang", "vllm")]
    assert all(words in lines[0] for words in ("DSPARK", "speculative-dspark-block-size 3", "draft-tokens 4"))
    assert '"method": "dspark"' in lines[1]
    with pytest.raises(UsageError, match="written for vllm, sglang, tensorrt-llm, not for tensorrt-edge-llm"):
        export("tensorrt-edge-llm", "chain", trace=tmp_path / "trace")
    # Of a lattice the path along the first candidates is the chain.
    chain, along = (replay(tmp_path / "trace", [one]).rows for one in ("chain", CHAIN))
    assert set(chain["committed"]) == set(along["committed"])


def test_chains_in_a_batch_are_those_of_each_text_alone() -> None:
    for seed in range(2):
        models, prompts = spark_models(seed), prompts_for(seed, 4)
        for together, one in zip(decode_batch(models, Chain(), prompts, GREEDY, MOST, 3), prompts, strict=True):
            alone = decode(models, Chain(), one, GREEDY, MOST)
            assert together.text.tolist() == alone.text.tolist()
            trees = [[ran.round.tree.tokens.tolist() for ran in text.rounds] for text in (together, alone)]
            assert trees[0] == trees[1]


def test_what_is_there_is_said(tmp_path: Path) -> None:
    said = str(inspect(make_spark(tmp_path / "spark")))
    assert "DSpark, as sglang 0.5.23 reads it" in said
    assert "rank 6, behind a gate that reads its state" in said
    assert "not used" in said
    assert "confidence head" in said


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"markov_head_type": "rnn"}, "of the type rnn, and simlab lacks its state"),
        ({"markov_head_type": "wide"}, "markov_head_type='wide'; simlab runs vanilla and gated"),
        ({"markov_rank": 0}, "rank must be at least 1"),
        ({"markov_rank": RANK + 1}, "do not fit"),
        ({"markov_rank": None}, "no 'markov_rank'"),
        ({"architectures": ["DeepseekV4DSparkModel"]}, "DeepseekV4DSparkModel, which simlab does not know"),
        (
            {"architectures": ["DFlashDraftModel"]},
            "DFlashDraftModel, which simlab does not know; it runs drafters of DS",
        ),
        ({"dspark_block_size": 7}, "inside it .dspark_block_size."),
        ({"final_logit_softcapping": 30.0}, "before or behind that is not said"),
        ({"final_logit_softcapping": 1.0}, "before or behind that is not said"),
        ({"confidence_head_with_markov": False}, "do not fit"),
        ({"dspark_config": {"mask_token_id": 5}}, "mask_token_id=5 and mask_token_id=4; its publisher"),
        ({"dspark_config": [1]}, r"dspark_config=.1. where an object belongs"),
        ({"markov_noise": 2}, "markov_noise=2, which simlab does not know"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, own: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        checked_parts(make_spark(tmp_path / "spark", **own))  # type: ignore[arg-type]


def test_other_networks_and_other_drafters_are_refused(target: Path, tmp_path: Path) -> None:
    place, other = make_spark(tmp_path / "spark"), make_spark(tmp_path / "other", seed=1)
    drafter = load_models(str(target), str(place), "float32", "cpu").block_drafter
    digest = checkpoint_digest(place)
    with pytest.raises(ModelError, match="Markov head in .*other belongs to the drafter beside it"):
        load_producer(other, {}, torch.float32, drafter, digest)
    with pytest.raises(ModelError, match="chain of its own Markov head, and .*plain goes on from marginals"):
        load_producer(make_drafter(tmp_path / "plain"), {}, torch.float32, drafter, digest)
    with pytest.raises(ModelError, match="no setting candidates"):
        load_producer(place, {"candidates": 4}, torch.float32, drafter, digest)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_sglangs_own_head_says_the_same(target: Path, tmp_path: Path, kind: str) -> None:
    place = make_spark(tmp_path / "spark", kind)
    models = load_models(str(target), str(place), "float32", "cpu")
    drafter, generator = models.block_drafter, torch.Generator().manual_seed(2)
    head = drafter.markov_head
    assert head is not None
    num, depth, above = 200, drafter.config.depth, 5
    given = {
        "after": torch.randn(num, depth, HIDDEN_SIZE, generator=generator),
        "roots": torch.randint(0, VOCAB_SIZE, (num,), generator=generator),
        "previous": torch.randint(0, VOCAB_SIZE, (num, depth - 1, above), generator=generator),
    }
    given["base"] = logits_of(drafter, models.target, given["after"])
    config = {"markov_rank": RANK, "markov_head_type": kind, "vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN_SIZE}
    theirs = sglang_heads.run(tmp_path, "dspark", config, head.state_dict(), given)
    ours = drafted_logits(drafter, models.target, given["after"], given["roots"])
    torch.testing.assert_close(ours, theirs["laws"], atol=1e-5, rtol=0)
    assert torch.equal(ours.argmax(-1), theirs["chain"])
    made = MarkovProducer(drafter, models.target, HeadReach(above, VOCAB_SIZE), head)
    base = BaseCandidates(np.zeros((num, depth, above), np.int32), np.zeros((num, depth, above), np.float32))
    base.ids[:, :-1] = given["previous"].numpy()
    rows = made.rows(BlockStates(torch.empty(0), given["after"]), given["roots"].numpy().astype(np.int32), base).rows
    shape = (num, 1 + (depth - 1) * above, VOCAB_SIZE)
    ids, log_probs = (torch.from_numpy(one.reshape(shape))[:, 1:] for one in (rows.ids, rows.log_probs))
    wanted = theirs["rows"].flatten(1, 2).log_softmax(-1)
    torch.testing.assert_close(log_probs, wanted.gather(-1, ids.long()), atol=2e-5, rtol=0)
