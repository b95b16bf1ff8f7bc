"""Plain decoding in batches equals one prompt at a time, and a loop that keeps nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from depth import some

from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.execution.text_passes import TextPasses, attention_of_texts
from simlab.real_runner.models import within_memory
from simlab.real_runner.record.prompts import read_prompts, render
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.sampling.choice import Sampling, choose, noise_key

GREEDY = Sampling(0.0, 0, 1.0, 0)
SAMPLED = Sampling(0.8, 20, 0.9, 3)
MAX_NEW_TOKENS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=some(["llama", "qwen3"]))
def place(request: pytest.FixtureRequest, folder: Path) -> Path:
    return tiny_models.make_target(folder / request.param, request.param, seed=1)


def prompts_for(target: Target, folder: Path, num: int = 9) -> list[list[int]]:
    records = read_prompts(tiny_models.write_prompts(folder / "prompts.jsonl", num))
    return [render(target.tokenizer, record.conversation, {}) for record in records]


def keys_for(prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[int]:
    return [noise_key(sampling.seed, f"p{i}", 0, 0) for i in range(len(prompts))]


def next_choice(target: Target, tokens: Sequence[int], sampling: Sampling, key: int) -> int:
    """What follows, from a pass over everything."""
    logits = target.model(torch.tensor([tokens])).logits[0, -1].float().numpy()
    return choose(logits, sampling, key, len(tokens))


@torch.inference_mode()
def without_a_cache(target: Target, prompt: Sequence[int], key: int, sampling: Sampling) -> list[int]:
    tokens = list(prompt)
    while len(tokens) - len(prompt) < MAX_NEW_TOKENS and not (
        len(tokens) > len(prompt) and tokens[-1] in target.stop_token_ids
    ):
        tokens.append(next_choice(target, tokens, sampling, key))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_it_is_the_loop_that_keeps_nothing(place: Path, tmp_path: Path, sampling: Sampling) -> None:
    target = load_target(str(place), torch.float64)
    prompts = prompts_for(target, tmp_path)
    keys = keys_for(prompts, sampling)
    found = generate(target, prompts, keys, sampling, MAX_NEW_TOKENS)
    for prompt, key, (token_ids, stop_reason) in zip(prompts, keys, found, strict=True):
        assert token_ids == without_a_cache(target, prompt, key, sampling)
        assert stop_reason == ("stop" if token_ids[-1] in tiny_models.STOP_TOKEN_IDS else "length")
    if place.name == "llama":
        assert {stop_reason for _, stop_reason in found} == {"stop", "length"}


@pytest.mark.parametrize("sampling", some([SAMPLED, GREEDY]))
def test_passes_of_fixed_sizes_write_the_same_texts(place: Path, tmp_path: Path, sampling: Sampling) -> None:
    """Batches of several sizes and lengths through one store: texts, tokens told of, and its room are as they were."""
    target = load_target(str(place), torch.float32)
    prompts, passes, told = prompts_for(target, tmp_path, 19), TextPasses(target), list[int]()
    batches = ((prompts[:3], 30), (prompts, 30), (prompts[4:5], 7), (prompts[7:], 1), (prompts[:2], 250))
    for batch, most in batches:
        keys = keys_for(batch, sampling)
        wanted = generate(target, batch, keys, sampling, most)
        assert generate(target, batch, keys, sampling, most, told.append, passes) == wanted
        assert sum(told) == sum(len(token_ids) for token_ids, _ in wanted)
        told.clear()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_texts_that_end_leave_the_passes(place: Path, tmp_path: Path, sampling: Sampling) -> None:
    """Many tokens end a text, so that rows are moved once or twice: from 40 to 16, and to 8."""
    target = replace(load_target(str(place), torch.float32), stop_token_ids=tuple(range(0, tiny_models.VOCAB_SIZE, 5)))
    prompts, passes = prompts_for(target, tmp_path, 37), TextPasses(target)
    keys, sizes = keys_for(prompts, sampling), list[int]()
    found = generate(target, prompts, keys, sampling, 60, lambda _: sizes.append(passes.num_rows), passes)
    assert found == generate(target, prompts, keys, sampling, 60)
    assert {40} < set(sizes) <= {40, 16, 8}


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_logits_that_are_not_numbers_are_said_to_be(place: Path, sampling: Sampling) -> None:
    target = load_target(str(place), torch.float16)
    with torch.no_grad():
        target.layers[0].get_parameter("mlp.up_proj.weight").fill_(torch.inf)
    for passes in (None, TextPasses(target)):
        with pytest.raises(ModelError, match="are not numbers in float16; give another --dtype, such as float32"):
            generate(target, [[7, 8]], [0], sampling, 2, passes=passes)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried"), RuntimeError("can't allocate memory"), MemoryError()]
)
def test_the_end_of_the_memory_is_a_sentence(error: Exception) -> None:
    with pytest.raises(ModelError, match="give a smaller --batch-size, or --dtype bfloat16"), within_memory():
        raise error
    with pytest.raises(RuntimeError, match="another"), within_memory():
        raise RuntimeError("another")


@torch.inference_mode()
def test_tapped_states_are_those_that_transformers_hands_out(place: Path) -> None:
    target = load_target(str(place), torch.float32)
    ids = torch.arange(5, 40)[None]
    layer_ids = (2, 0)
    with tapped(target, layer_ids) as taken:
        states = target.states(ids)
    features = features_of(taken, layer_ids)
    hidden = target.model(ids, output_hidden_states=True).hidden_states
    assert torch.equal(features, torch.cat([hidden[3], hidden[1]], dim=-1))
    assert torch.equal(states, hidden[-1])
    with tapped(target, [3, -1]) as taken:
        target.states(ids)
    assert torch.equal(features_of(taken, [-1, 3]), torch.cat([hidden[0], hidden[-1]], dim=-1))
    with tapped(target, []) as taken:
        target.states(ids)
    assert taken == {}


def test_a_token_sees_its_own_text_alone() -> None:
    random = torch.Generator().manual_seed(0)
    num, heads, groups, size, room, lengths = 3, 4, 2, 8, 16, (1, 9, 5)
    query = torch.randn(num, heads, size, generator=random)
    keys, values = torch.randn(2, groups, num * room + 5, size, generator=random)
    hidden = torch.arange(10) >= torch.tensor(lengths)[:, None]
    mask = torch.zeros(num, 10).masked_fill(hidden, -torch.inf)[:, None, None]
    found = attention_of_texts(query, keys, values, mask, room, 0.3)
    for text, length in enumerate(lengths):
        for head in range(heads):
            seen = slice(text * room, text * room + length)
            weights = (keys[head // 2, seen] @ query[text, head] * 0.3).softmax(0)
            own = found[text, head * size : (head + 1) * size]
            torch.testing.assert_close(own, weights @ values[head // 2, seen])


def test_the_first_stop_token_ends_a_text_and_is_part_of_it(place: Path, tmp_path: Path) -> None:
    target = load_target(str(place), torch.float32)
    assert target.stop_token_ids == tiny_models.STOP_TOKEN_IDS
    prompts = prompts_for(target, tmp_path)
    texts = generate(target, prompts, keys_for(prompts, SAMPLED), SAMPLED, 100)
    for token_ids, stop_reason in texts:
        stops = np.flatnonzero(np.isin(token_ids, target.stop_token_ids)).tolist()
        ended = len(token_ids) - 1
        assert (stop_reason, stops) in (("stop", [ended]), ("length", []))
        assert stop_reason == "stop" or len(token_ids) == 100
    assert place.name == "qwen3" or "stop" in {stop_reason for _, stop_reason in texts}
