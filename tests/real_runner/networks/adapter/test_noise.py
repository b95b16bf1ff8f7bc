"""Noise in place of masks: drawn as UNO's engine draws it, and an adapter with it is that of plain products."""

import json
from pathlib import Path

import numpy as np
import pytest
import random_trees
import tiny_models
import torch
from commands import output_of
from hypothesis import given
from hypothesis import strategies as st
from random_adapter import as_released, make_adapter, random_adapter
from safetensors.torch import load_file, save_file
from systems import self_models
from tiny_models import write_prompts
from training_runs import write_table

from simlab.draft import Prompt
from simlab.errors import ModelError, TraceError
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.real_runner.checkpoints.contents import config_file
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.adapter.config import adapter_from_json
from simlab.real_runner.networks.adapter.gated import load_adapter
from simlab.real_runner.networks.adapter.masked import OwnDrafter, mask_states, read_texts
from simlab.real_runner.networks.adapter.noise import Noise, noise_of, parse_noise
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.networks.treeflash import train_head
from simlab.real_runner.train.options import HeadOptions
from simlab.real_runner.train.plan import TextOptions
from simlab.sampling.choice import Sampling
from simlab.studies.confirm.confirm import confirm
from simlab.traces.reader import open_trace

BITS = (1 << 64) - 1
NOISE = Noise(below=tiny_models.VOCAB_SIZE, salt=5)


def mixed(value: int) -> int:
    value &= BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS
    return (value ^ (value >> 31)) & BITS


def as_the_engine(prompt: list[int], text: list[int], noise: Noise, num: int) -> list[int]:
    """What stands behind the last of prompt and text: the engine's formula, number by number."""
    hashed = 0xD6E8FEB86659FD93
    for token in prompt:
        hashed = mixed(hashed ^ token)
    committed, length = [*prompt, *text][-1], len(prompt) + len(text)
    base = hashed * 0x9E3779B185EBCA87 + noise.salt * 0xD1B54A32D192ED03 + len(text) * 0xC2B2AE3D27D4EB4F
    base += committed * 0x165667B19E3779F9 + length * 0x85EBCA77C2B2AE63
    return [1 + mixed(base + slot * 0x27D4EB2F165667C5) % (noise.below - 1) for slot in range(num)]


@given(
    prompt=st.lists(st.integers(0, 200_000), min_size=1, max_size=6),
    text=st.lists(st.integers(0, 200_000), max_size=6),
    below=st.integers(2, 200_000),
    salt=st.integers(0, 1 << 40),
    num=st.integers(1, 9),
)
def test_noise_is_drawn_as_the_engine_draws_it(
    prompt: list[int], text: list[int], below: int, salt: int, num: int
) -> None:
    noise, whole = Noise(below=below, salt=salt), np.array([*prompt, *text], np.int32)
    places = np.arange(len(prompt) - 1, len(whole))
    drawn = noise.behind(prompt).tokens(whole[places], places, num)
    expected = [as_the_engine(prompt, text[:written], noise, num) for written in range(len(text) + 1)]
    assert drawn.tolist() == expected
    assert drawn.min() >= 1
    assert drawn.max() < below


def test_draws_are_uniform() -> None:
    """In 200 classes, 40 draws each: chi-square is normal enough, and a lost bit or a fixed slot is far outside."""
    places = np.arange(1000)
    drawn = Noise(below=201).behind([7]).tokens(places % 90, places, 8)
    counts = np.bincount(drawn.ravel(), minlength=201)[1:]
    assert abs(((counts - 40) ** 2 / 40).sum() - 199) < 5 * (2 * 199) ** 0.5
    for slot in range(8):
        assert len(np.unique(drawn[:, slot])) > 150


def test_a_mask_token_stands_everywhere() -> None:
    assert Noise("mask", 9).behind([1, 2]).tokens(np.array([3, 4]), np.array([2, 3]), 2).tolist() == [[9, 9], [9, 9]]


@pytest.mark.parametrize(
    "typed",
    [
        *("mask,token=9", "deterministic,below=49152,salt=0", "random,below=10,seed=4294967295"),
        *("mask,token=9,temperature=0.7", "deterministic,below=5,salt=1,temperature=1.25"),
    ],
)
def test_noise_is_typed_as_it_is_written(typed: str) -> None:
    noise = parse_noise(typed)
    assert noise.text() == typed
    assert noise_of(typed) == noise
    assert noise_of("") is None


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("uniform", "expected noise of mask, deterministic, random; got 'uniform'"),
        ("mask,below=3", "noise of mask has no setting 'below'"),
        ("deterministic,below=1", "1"),
        ("random,seed=-1", "-1"),
        ("mask,temperature=0", "above 0, at most 100; got '0'"),
    ],
)
def test_noise_that_cannot_be_is_refused(typed: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_noise(typed)
    with pytest.raises(TraceError, match="the manifest's noise cannot be read"):
        noise_of(typed)


@torch.no_grad()
def test_an_adapter_at_noise_is_a_sum_of_products() -> None:
    """A pass over text and noise in which every product is that of W at text, and of W + (alpha / r) B A at noise."""
    target = random_trees.random_models("qwen3", 2, 23, torch.float64).target
    adapter = random_adapter(target, 4, 3, noise=Noise(below=23))
    text, anchor = torch.arange(3, 16), 9
    assert adapter.config.noise is not None
    drawn = torch.from_numpy(adapter.config.noise.behind([3, 4]).tokens(text[anchor:][:1].numpy(), np.array([9]), 3))
    found = mask_states(target, adapter, read_texts(target, text[None]), torch.tensor([[anchor]]), drawn[None])
    ids = torch.cat([text[: anchor + 1], drawn[0]])[None]
    gate = (torch.arange(anchor + 4) > anchor).double()[:, None]
    hooks = []
    for number, layer in enumerate(target.layers):
        for name, product in layer.named_modules():
            if isinstance(product, torch.nn.Linear):
                low = adapter.change(number, name)
                matrix = low.scale * low.lora_B.weight @ low.lora_A.weight
                hooks.append(product.register_forward_hook(lambda _, x, y, w=matrix: y + gate * (x[0] @ w.T)))
    expected = target.states(ids)[0, anchor + 1 :]
    for hook in hooks:
        hook.remove()
    assert torch.allclose(found[0, 0], expected, atol=1e-5)
    other = mask_states(target, adapter, read_texts(target, text[None]), torch.tensor([[anchor]]), drawn[None] % 22 + 1)
    assert not torch.allclose(found, other, atol=1e-2), "what stands there is not read"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    target = tiny_models.make_target(tmp_path / "target")
    return make_adapter(tmp_path / "adapter", target, noise=Noise(below=tiny_models.VOCAB_SIZE))


def test_an_adapter_as_released_is_read_and_says_what_it_lacks(place: Path, tmp_path: Path) -> None:
    target = load_target(str(tmp_path / "target"), torch.float32)
    own = load_adapter(place, target)
    assert own.config.noise == Noise(below=tiny_models.VOCAB_SIZE)
    released = load_adapter(as_released(place), target)
    assert all(torch.equal(one, other) for one, other in zip(own.parameters(), released.parameters(), strict=True))
    told = adapter_from_json(read_fields(config_file(place)))
    assert told is not None
    assert not told.target_digest
    how = (str(tmp_path / "target"), str(place), "float32", "cpu")
    for given_ in ({}, {"block": 4}, {"noise": NOISE}):
        with pytest.raises(ModelError, match=r"give --block N.*and --noise"):
            load_models(*how, **given_)
    with pytest.raises(
        ModelError, match=r"below of noise is from 2 to 101 .*got 102; give --noise deterministic,below=N"
    ):
        load_models(*how, block=4, noise=Noise(below=tiny_models.VOCAB_SIZE + 1))
    with pytest.raises(ModelError, match="give --noise mask,token=N"):
        load_models(*how, block=4, noise=Noise("mask", tiny_models.VOCAB_SIZE))
    config = load_models(*how, block=4, noise=NOISE).drafter.config
    assert (config.depth, config.noise, config.vocab_size) == (3, NOISE, tiny_models.VOCAB_SIZE)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"use_rslora": True}, "use_rslora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "LOHA"}, "'LOHA' of PEFT"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"target_modules": ["q_proj", "v_proj"]}, "one that changes others is no drafter"),
        ({"r": 8}, "do not fit"),
    ],
)
def test_what_would_run_otherwise_is_refused(place: Path, changed: dict[str, object], said: str) -> None:
    path = as_released(place) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ModelError, match=said):
        load_adapter(place, load_target(str(place.parent / "target"), torch.float32))


def test_a_layer_too_few_is_refused(place: Path) -> None:
    path = as_released(place) / "adapter_model.safetensors"
    save_file({name: one for name, one in load_file(path).items() if ".layers.3." not in name}, path)
    with pytest.raises(ModelError, match="are not of an adapter of"):
        load_adapter(place, load_target(str(place.parent / "target"), torch.float32))


@torch.no_grad()
def test_laws_are_at_the_temperature_that_was_asked_for() -> None:
    target = random_trees.random_models("qwen3", 2, 23, torch.float64).target
    drafted = []
    for temperature in (1.0, 0.7):
        adapter = random_adapter(target, 4, 3, noise=Noise(below=23, temperature=temperature))
        own = OwnDrafter(adapter, target)
        live = own.live(CandidatesRead(23), 20)
        live.begin(np.arange(3, 8, dtype=np.int32))
        live.take(own.states(torch.arange(3, 9)[None], torch.tensor([[5]])))
        drafted.append(live.draft(np.arange(3, 9, dtype=np.int32)))
        assert torch.allclose(
            live.logits(torch.ones(1, own.config.hidden_size).double()) * temperature, logits_at_one(target)
        )
    one, other = (found.marginals.at(1) for found in drafted if found is not None)
    scaled = np.exp(one[1].astype(np.float64) / 0.7)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(other[1], np.log(scaled / scaled.sum()), atol=1e-4)


def logits_at_one(target: Target) -> torch.Tensor:
    return target.logits(torch.ones(1, target.embedding.embedding_dim).double())


def test_noise_is_of_adapters_without_masks_alone(tmp_path: Path) -> None:
    target = tiny_models.make_target(tmp_path / "target")
    drafter, masks = tiny_models.make_drafter(tmp_path / "drafter"), make_adapter(tmp_path / "masks", target)
    for draft, said in ((drafter, "this is none; leave --noise out"), (masks, "masks of its own.*leave --noise out")):
        with pytest.raises(ModelError, match=said):
            load_models(str(target), str(draft), "float32", "cpu", noise=NOISE)


def test_noise_of_another_text_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text's prompt is in its hash: two prompts that end alike have other drafts behind their first token."""
    models, drawn = self_models(1, noise=Noise(below=12)), list[list[int]]()
    whole = type(NOISE.behind([1])).tokens

    def kept(self: object, *given_: object) -> object:
        found = whole(self, *given_)  # type: ignore[arg-type]
        drawn.append(found[0].tolist())
        return found

    monkeypatch.setattr(type(NOISE.behind([1])), "tokens", kept)
    for first in (3, 4):
        prompt = Prompt("p", "d", 0, 0, np.array([first, 5, 6], np.int32))
        decode(models, SelfSpeculation(4, 0), prompt, Sampling(0.0, 0, 1.0, 0), 4)
    (one, other) = (drawn[index] for index in (0, len(drawn) // 2))
    assert one != other


def test_no_head_is_trained_on_an_adapter_that_does_not_say_its_noise(place: Path, tmp_path: Path) -> None:
    texts = write_table(tmp_path / "texts.parquet")
    target, adapter, out = str(tmp_path / "target"), str(as_released(place)), tmp_path / "head"
    with pytest.raises(ModelError, match="does not say which tokens stand at its rows"):
        train_head(HeadOptions(target=target, draft=adapter, texts=TextOptions(text=texts), out=out))
    assert not (out / "model.safetensors").exists()


def test_a_trace_keeps_the_noise_and_the_runner_draws_it_again(place: Path, tmp_path: Path) -> None:
    """An adapter as released, whose noise stands in the trace alone."""
    adapter, target, prompts = as_released(place), place.parent / "target", write_prompts(tmp_path / "p.jsonl", 2)
    trace, models = tmp_path / "trace", ("--target", target, "--draft", adapter, "--block", 4, "--noise", NOISE.text())
    printed = output_of("record", *models, "--prompts", prompts, "--max-new-tokens", 16, "--out", trace)
    assert f"simlab replay --trace {trace} -p uno:" in printed
    kept = open_trace(trace).manifest.draft_sets["self"]
    assert (kept.block_size, kept.root_seen, kept.noise) == (4, False, "deterministic,below=101,salt=5")
    found = confirm(policies=["uno:budget=6,top_k=3"], trace=trace, draft=str(adapter), out=tmp_path / "c", repeats=1)
    assert "Rounds and rows are those of the trace: no difference." in str(found)
