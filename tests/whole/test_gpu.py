"""On a GPU, in float32: records are those of a CPU, and every policy writes the same text, captured or not."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from captured_rehearsals import captured, on_device, unfuse  # noqa: E402
from systems import GREEDY, SAMPLED, SYSTEMS, prompts_for  # noqa: E402
from tiny_models import make_pair, write_prompts  # noqa: E402

from simlab.draft import Prompt  # noqa: E402
from simlab.policies.named.autoregressive import Autoregressive  # noqa: E402
from simlab.policies.parsing.parse import parse_policies  # noqa: E402
from simlab.real_runner.attention.tree_attention import plain_tree_attention, split_tree_attention  # noqa: E402
from simlab.real_runner.decoding.decode import decode  # noqa: E402
from simlab.real_runner.decoding.generate import generate  # noqa: E402
from simlab.real_runner.decoding.own_rows import first_unequal  # noqa: E402
from simlab.real_runner.decoding.plain import clock_of  # noqa: E402
from simlab.real_runner.decoding.speculation import Speculation  # noqa: E402
from simlab.real_runner.models import load_models  # noqa: E402
from simlab.real_runner.record.options import RecordOptions  # noqa: E402
from simlab.real_runner.record.record import record  # noqa: E402
from simlab.real_runner.record.sources import AnsweredTurn  # noqa: E402
from simlab.real_runner.record.texts import launch, record_text, together  # noqa: E402
from simlab.sampling.choice import Sampling  # noqa: E402
from simlab.traces.reader import open_trace  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_gpu_records_the_same_rows(tmp_path: Path, temperature: float) -> None:
    target, drafter = make_pair(tmp_path)
    prompts = write_prompts(tmp_path / "prompts.jsonl", 4)
    traces = []
    for device in ("cpu", "cuda"):
        options = RecordOptions(
            str(target),
            str(drafter),
            out=tmp_path / device,
            prompts=prompts,
            temperature=temperature,
            max_new_tokens=24,
            device=device,
        )
        traces.append(open_trace(record(options)))
    for ours, theirs in zip(*(trace.records(["dflash"]) for trace in traces), strict=True):
        np.testing.assert_array_equal(ours.text, theirs.text)
        cpu, gpu = ours.drafts["dflash"], theirs.drafts["dflash"]
        np.testing.assert_allclose(cpu.entropy, gpu.entropy, atol=1e-4)
        known = cpu.has_true_log_prob
        np.testing.assert_allclose(cpu.true_log_prob[known], gpu.true_log_prob[known], atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_policy_writes_the_same_text_on_a_gpu(tmp_path: Path, family: str, temperature: float) -> None:
    target, drafter = make_pair(tmp_path, family)
    texts = []
    for device in ("cpu", "cuda"):
        models = load_models(str(target), str(drafter), "float32", device)
        prompt = Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32))
        for policy in parse_policies(["ar", "chain", "ddtree:budget=1/8/32"]):
            sampling = Sampling(temperature, 0, 1.0, 7)
            found = decode(models, policy.policy, prompt, sampling, 48, clock_of(models.target.device))
            assert first_unequal(policy.policy, found) is None
            texts.append(found.text.tolist())
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_captured_passes_write_the_same_text(tmp_path: Path, family: str, temperature: float) -> None:
    """Texts one after the other on the same buffers; the second time everything has been captured."""
    target, drafter = make_pair(tmp_path, family)
    models = load_models(str(target), str(drafter), "float32", "cuda")
    graphed = captured(models)
    sampling, clock = Sampling(temperature, 0, 1.0, 7), clock_of(models.target.device)
    num_rounds = 0
    # 255 tokens are the last that a size of contexts holds; for the longest text all is captured anew.
    for length in (255, 20, 300, 700, 20):
        prompt = Prompt(f"p{length}", "made-up", 0, 0, (np.arange(length) % 50 + 5).astype(np.int32))
        for policy in parse_policies(["ar", "chain", "ddtree:budget=1/8/32", "ddtree:budget=520"]):
            ours = decode(graphed, policy.policy, prompt, sampling, 48, clock)
            theirs = decode(models, policy.policy, prompt, sampling, 48, clock)
            assert ours.text.tolist() == theirs.text.tolist()
            assert first_unequal(policy.policy, ours) is None
            # A text that ended with its first token has no rounds.
            assert all(ran.seconds.total_s > 0 for ran in ours.rounds)
            num_rounds += len(ours.rounds)
    assert num_rounds > 0
    assert graphed.graphs is not None
    assert graphed.graphs.graphs.seconds > 0


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_kind_of_drafter_and_channel_is_captured(name: str) -> None:
    """At temperature 0 and 1: the text of plain decoding, and rows that replay; the second text finds all captured."""
    system = SYSTEMS[name]
    models = captured(on_device(system.models(1, "qwen3"), "cuda"))
    for prompt, sampling in itertools.product(prompts_for(1), (GREEDY, SAMPLED)):
        plain = decode(models, Autoregressive(), prompt, sampling, system.most).text.tolist()
        for policy in system.policies(1, "qwen3"):
            found = decode(models, policy, prompt, sampling, system.most)
            assert found.text.tolist() == plain
            assert first_unequal(policy, found) is None


def test_fused_passes_are_those_of_the_models_own_modules(tmp_path: Path) -> None:
    """In float32: the same text, and the same first draft within rounding."""
    target, drafter = make_pair(tmp_path)
    prompt = Prompt("p", "made-up", 0, 0, (np.arange(300) % 50 + 5).astype(np.int32))
    (policy,) = parse_policies(["ddtree:budget=24"])
    texts, drafts = [], []
    for is_fused in (True, False):
        models = load_models(str(target), str(drafter), "float32", "cuda")
        models = captured(models)
        assert models.graphs is not None
        assert models.graphs.fused.target is not None
        assert models.graphs.fused.drafter(models.block_drafter) is not None
        if not is_fused:
            unfuse(models)
        found = decode(models, policy.policy, prompt, Sampling(0.0, 0, 1.0, 7), 48)
        texts.append(found.text.tolist())
        drafts.append(found.rounds[0].marginals if found.rounds else None)
    assert texts[0] == texts[1]
    if drafts[0] is not None and drafts[1] is not None:
        np.testing.assert_allclose(drafts[0].log_probs, drafts[1].log_probs, atol=4e-5)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 1e-2)])
def test_attention_in_parts_is_that_to_all_keys_at_once(dtype: str, most: float) -> None:
    kind, random = getattr(torch, dtype), torch.Generator("cuda").manual_seed(0)
    shapes = [(1, 9, 3, 64, 512, 200), (8, 4, 2, 8, 256, 100), (72, 9, 3, 64, 512, 190), (640, 32, 8, 128, 8192, 7000)]
    for num, heads, groups, size, room, root in shapes:
        query, keys, values = (
            torch.randn(*shape, size, generator=random, device="cuda").to(kind)
            for shape in ((num, heads), (groups, room), (groups, room))
        )
        drawn = torch.rand(num, num, generator=random, device="cuda")
        ancestors = (drawn < 0.3) | torch.eye(num, dtype=torch.bool, device="cuda")
        rest = (torch.tensor([root], device="cuda"), ancestors, room, size**-0.5)
        found = split_tree_attention(query, keys, values, *rest).double()
        wanted = plain_tree_attention(query.double(), keys.double(), values.double(), *rest)
        assert (found - wanted).norm() < most * wanted.norm()


def test_two_sets_of_captured_passes_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As a profile has them, one for each context; one of them takes new buffers meanwhile."""
    target, drafter = make_pair(tmp_path)
    models = load_models(str(target), str(drafter), "float32", "cuda")
    both = [captured(models) for _ in range(2)]
    (policy,) = parse_policies(["ddtree:budget=8"])
    for number, length in ((0, 20), (1, 20), (0, 600), (1, 20), (0, 20)):
        prompt = Prompt(f"p{length}", "made-up", 0, 0, (np.arange(length) % 50 + 5).astype(np.int32))
        texts = [
            decode(one, policy.policy, prompt, Sampling(0.0, 0, 1.0, 7), 48).text.tolist()
            for one in (both[number], models)
        ]
        assert texts[0] == texts[1]


def test_masked_attention_in_bfloat16_gives_numbers(tmp_path: Path) -> None:
    target, drafter = make_pair(tmp_path)
    models = load_models(str(target), str(drafter), "bfloat16", "cuda")
    graphed = captured(models)
    prompt = Prompt("p", "made-up", 0, 0, (np.arange(300) % 50 + 5).astype(np.int32))
    for policy in parse_policies(["ar", "chain", "ddtree:budget=32"]):
        for loaded in (models, graphed):
            assert len(decode(loaded, policy.policy, prompt, Sampling(0.0, 0, 1.0, 7), 48).text) > 0


def test_a_captured_round_waits_for_the_device_at_one_place_only(tmp_path: Path) -> None:
    """torch raises at every wait but the one that is asked for by name."""
    target, drafter = make_pair(tmp_path)
    models = load_models(str(target), str(drafter), "float32", "cuda")
    models = replace(models, target=replace(models.target, stop_token_ids=()))
    models = captured(models)
    (policy,) = parse_policies(["ddtree:budget=8"])
    running = Speculation(models, policy.policy, Sampling(0.0, 0, 1.0, 7), 64, clock_of(models.target.device))
    running.add(Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32)))
    for _ in range(4):
        running.round()
    torch.cuda.set_sync_debug_mode("error")
    try:
        running.round()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_captured_passes_write_many_texts(tmp_path: Path, temperature: float) -> None:
    """Batches one after the other through one store; behind the first all is captured."""
    target, drafter = make_pair(tmp_path)
    models, sampling = load_models(str(target), str(drafter), "float32", "cuda"), Sampling(temperature, 0, 1.0, 7)
    assert models.texts is not None
    for num, length in ((20, 30), (20, 30), (3, 250), (1, 20)):
        prompts = [[5 + (text + at) % 90 for at in range(length + text)] for text in range(num)]
        ours = generate(models.target, prompts, range(num), sampling, 40, passes=models.texts)
        assert ours == generate(models.target, prompts, range(num), sampling, 40)


def test_the_rows_of_texts_are_launched_without_a_wait(tmp_path: Path) -> None:
    target, drafter = make_pair(tmp_path)
    models = load_models(str(target), str(drafter), "float32", "cuda")
    options = RecordOptions(str(target), str(drafter), out=tmp_path, prompts=tmp_path)
    texts = [
        AnsweredTurn(
            Prompt("p", "d", 0, 0, np.arange(5, 9, dtype=np.int32)), np.arange(9, 20 + n, dtype=np.int32), "stop"
        )
        for n in range(5)
    ]
    alone = [record_text(options, models, index, text) for index, text in enumerate(texts)]
    launch(options, models, texts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        launch(options, models, texts)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for (number, record_of_one), theirs in zip(sorted(together(options, models, 0, texts)), alone, strict=True):
        ours, other = record_of_one.drafts["dflash"], theirs.drafts["dflash"]
        assert number == record_of_one.index
        np.testing.assert_array_equal(ours.true_rank, other.true_rank)
        np.testing.assert_allclose(ours.true_log_prob, other.true_log_prob, atol=1e-4)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_target_on_two_gpus_writes_the_texts_of_one(tmp_path: Path) -> None:
    target, drafter = make_pair(tmp_path)
    parts = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
    halves = {f"model.layers.{i}": i // 2 for i in range(4)} | dict.fromkeys(parts[:1], 0) | dict.fromkeys(parts[1:], 1)
    prompt = Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32))
    texts = []
    for device_map in (None, halves):
        models = load_models(str(target), str(drafter), "float32", "cuda", device_map=device_map)
        assert models.target.placement == ("" if device_map is None else "layers on cuda:0: 2, cuda:1: 2")
        clock = clock_of(models.target.device)
        policies = [named.policy for named in parse_policies(["ar", "chain", "ddtree:budget=8"])]
        texts += [decode(models, policy, prompt, Sampling(0.0, 0, 1.0, 0), 48, clock).text for policy in policies]
    for text in texts[1:]:
        np.testing.assert_array_equal(texts[0], text)


def test_layers_in_the_machines_memory_write_the_texts_of_a_gpu(tmp_path: Path) -> None:
    target, drafter = make_pair(tmp_path)
    parts = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0", "model.layers.1")
    halves: dict[str, str | int] = dict.fromkeys(parts, 0) | {"model.layers.2": "cpu", "model.layers.3": "cpu"}
    prompt = Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32))
    texts = []
    for device_map in (None, halves):
        models = load_models(str(target), str(drafter), "float32", "cuda", device_map=device_map)
        clock = clock_of(models.target.device)
        policies = [named.policy for named in parse_policies(["ar", "ddtree:budget=8"])]
        texts += [decode(models, policy, prompt, Sampling(0.0, 0, 1.0, 0), 48, clock).text for policy in policies]
    for text in texts[1:]:
        np.testing.assert_array_equal(texts[0], text)
