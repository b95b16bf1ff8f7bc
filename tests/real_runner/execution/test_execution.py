"""``--execution``: compiled models write the texts of eager ones and compile nothing between rounds; prices say how."""

import gc
import json
import logging
import shutil
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from commands import output_of, refusal_of
from confirm_runs import Made, setup_of
from depth import some
from made_up_costs import filled
from torch._dynamo.utils import counters
from transformers import DynamicCache, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.confirm.audit import TextLosses, audit_text
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.execution import compiled_layers, fused_layers
from simlab.real_runner.execution.compiled_layers import compile_drafter, compile_target
from simlab.real_runner.execution.executions import (
    COMPILED,
    CUDA_GRAPHS,
    EAGER,
)
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.profile.rounds import RoundTimer, setting_of
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.traces.artefacts.cost import CostFile, write_cost_file

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(0.8, 0, 1.0, 3)
POLICIES = "ar", "chain", "ddtree:budget=1/2/3/8/40"

needs_compiler = pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None, reason="there is no C++ compiler here"
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    made = (
        tiny_models.make_target(folder / "target", seed=1),
        tiny_models.make_drafter(folder / "drafter", num_layers=1),
    )
    return str(made[0]), str(made[1])


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of torch.compile but the generated code, which takes the longest and decides nothing about sizes."""

    def compiled(region: Callable[..., object]) -> Callable[..., object]:
        return torch.compile(region, dynamic=True, fullgraph=True, backend="eager")

    torch._dynamo.reset()
    # What it writes for its own tools is captured by pytest, and slow.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)
    monkeypatch.setattr(compiled_layers, "compiled", compiled)
    yield
    torch._dynamo.reset()


def num_compiled() -> int:
    return int(counters["stats"]["unique_graphs"])


def prompts(models: Models) -> list[Prompt]:
    random = np.random.default_rng(0)
    return [
        Prompt(f"p{length}", "d", 0, 0, random.integers(5, models.target.vocab_size, length).astype(np.int32))
        for length in some((40, 2, 7, 4), quick=2)
    ]


def texts(models: Models, sampling: Sampling) -> list[list[int]]:
    policies = parse_policies(POLICIES)
    return [
        decode(models, policy.policy, prompt, sampling, 8).text.tolist()
        for prompt in prompts(models)
        for policy in policies
    ]


# Which models, and what they compute


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
@torch.inference_mode()
def test_the_regions_of_a_layer_are_the_layer(kind: type[LlamaConfig], tmp_path: Path) -> None:
    """Without a compiler every bit is the same, under each kind of mask and with several sequences."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {**tiny_models.TARGET_SIZES, "sliding_window": None}
    config = kind(**sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tiny_models.tiny_tokenizer().save_pretrained(tmp_path)
    target, other = load_target(str(tmp_path), torch.float32), load_target(str(tmp_path), torch.float32)
    compile_target(other, lambda region: region)
    ids = torch.randint(5, target.vocab_size, (3, 11), generator=torch.Generator().manual_seed(1))
    for length in (1, 11):
        assert torch.equal(target.states(ids[:, :length]), other.states(ids[:, :length]))
    visible = torch.ones(11, 11, dtype=torch.bool).tril()[None, None]
    assert torch.equal(target.states(ids, None, visible), other.states(ids, None, visible))
    for models in (target, other):
        assert torch.equal(models.states(ids[:, :7], cache := BufferCache(models)), target.states(ids[:, :7]))
        assert cache.length == 7


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_layer_takes_keys_and_values_under_the_name_of_any_transformers(name: str, pair: tuple[str, str]) -> None:
    target = load_target(pair[0], torch.float32)
    compile_target(target, lambda region: region)
    hidden, cache = torch.zeros(1, 3, target.config.hidden_size), DynamicCache()
    decoder = target.model.get_decoder()
    turns = decoder.rotary_emb(hidden, torch.arange(3)[None])
    target.layers[0](hidden, position_embeddings=turns, **{name: cache})
    assert cache.get_seq_length() == 3


def test_layers_of_another_kind_are_refused(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_layers, "LAYERS", ("Qwen3DecoderLayer",))
    with pytest.raises(ModelError, match="has layers of the kind LlamaDecoderLayer, .* give --execution eager"):
        load_models(*pair, "float32", "cpu", execution=COMPILED)


@pytest.mark.usefixtures("traced")
def test_trees_of_every_size_compile_nothing_more(pair: tuple[str, str]) -> None:
    eager = load_models(*pair, "float32", "cpu")
    compiled = load_models(*pair, "float32", "cpu", execution=COMPILED)
    assert (eager.execution, compiled.execution) == (EAGER, COMPILED)
    before = num_compiled()
    assert before > 0
    assert texts(compiled, GREEDY) == texts(eager, GREEDY)
    prompt, tree = prompts(eager)[0], parse_policies(["ddtree:budget=8"])[0].policy
    found, wanted = (decode(models, tree, prompt, SAMPLED, 12).text for models in (compiled, eager))
    assert found.tolist() == wanted.tolist()
    assert num_compiled() == before


@pytest.mark.thorough
@pytest.mark.usefixtures("traced")
def test_profiled_rounds_compile_nothing_more(pair: tuple[str, str]) -> None:
    """Going back to the beginning of a context hands the drafter states that lie elsewhere."""
    models = load_models(*pair, "float32", "cpu", execution=COMPILED)
    before, clock = num_compiled(), clock_of(torch.device("cpu"))
    ids = np.resize(prompts(models)[0].token_ids, 300)
    for context in (16, 60, 200):
        rounds = RoundTimer(models, 40, ids, context, GREEDY, clock)
        for num_drafted in (0, 1, 7, 40):
            for _ in range(4):
                rounds.visit(num_drafted, 1)
    assert num_compiled() == before


@pytest.mark.thorough
@needs_compiler
def test_generated_code_writes_the_same_texts(pair: tuple[str, str]) -> None:
    """The target's regions alone; what the drafter's code is made from is the same."""
    torch._dynamo.reset()
    eager, other = load_models(*pair, "float32", "cpu"), load_models(*pair, "float32", "cpu")
    compile_target(other.target, fused_layers.compiled)
    assert texts(other, GREEDY) == texts(eager, GREEDY)
    torch._dynamo.reset()


def test_the_drafter_is_two_regions(pair: tuple[str, str]) -> None:
    models, regions = load_models(*pair, "float32", "cpu"), []

    def watched(region: Callable[..., object]) -> Callable[..., object]:
        def ran(*values: object) -> object:
            regions.append(region.__name__)
            return region(*values)

        return ran

    compile_drafter(models.block_drafter, watched)
    chain = parse_policies(["chain"])[0].policy
    decode(models, chain, prompts(models)[0], GREEDY, 5)
    assert regions[:4] == ["context_at", "states", "context_at", "states"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("first\n  CXX is missing\n"), "torch.compile does not work here (CXX is missing)"),
        (ImportError("no triton"), "torch.compile does not work here (no triton)"),
    ],
)
def test_a_machine_that_cannot_compile_is_told_what_to_do(
    pair: tuple[str, str], error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "compile", failing)
    models = ("--target", pair[0], "--draft", pair[1], "--execution", "compiled")
    err = refusal_of("profile", *models, "--out", tmp_path / "cost.json")
    assert said in err
    assert err.rstrip().endswith("give --execution eager")
    assert not (tmp_path / "cost.json").exists()


# What files and commands say


@pytest.mark.parametrize("command", ["profile", "confirm"])
def test_captured_passes_need_a_gpu(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any model is loaded."""

    def unwanted(*_: object, **__: object) -> Models:
        raise AssertionError("models were loaded")

    monkeypatch.setattr("simlab.real_runner.profile.profile.load_models", unwanted)
    monkeypatch.setattr("simlab.real_runner.confirm.setup.load_models", unwanted)
    said = "--execution cuda_graphs needs a GPU, and the device is cpu; give --device cuda, or --execution eager"
    assert said in refusal_of(command, "--execution", "cuda_graphs", "--out", tmp_path / "out")
    with pytest.raises(ValueError, match="captures passes of one text at a time, and --batch is 4"):
        ConfirmOptions(Path("x"), execution=CUDA_GRAPHS, device="cuda:1", batch=4)
    assert ConfirmOptions(Path("x"), execution=CUDA_GRAPHS, device="cuda:1").batch == 1


def prices(made: Made) -> CostFile:
    setup = setup_of(made, ConfirmOptions(made.folder / "unused"))
    file = setting_of(setup.models, "d", "float32", "cpu", setup.sampling)
    return filled(replace(file, contexts=(16, 512), node_counts=(0, 8, 16), repeats=3))


def test_prices_of_fused_layers_are_of_an_attention_of_their_own(made: Made) -> None:
    setup = setup_of(made, ConfirmOptions(made.folder / "unused"))
    graphed = replace(setup.models, graphs=GraphedModels(setup.models.target, setup.models.block_drafter))
    found = [setting_of(models, "d", "float32", "cpu", setup.sampling) for models in (setup.models, graphed)]
    assert [file.attention for file in found] == ["grouped_sdpa", "fused"]


@pytest.mark.thorough
@pytest.mark.usefixtures("traced")
def test_a_confirmation_says_how_it_ran(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts are held against an eager target, and eager prices are none of it."""
    audited: list[Target] = []

    def watched(target: Target, prompt: Prompt, text: Ints, sampling: Sampling) -> TextLosses:
        audited.append(target)
        return audit_text(target, prompt, text, sampling)

    monkeypatch.setattr("simlab.real_runner.confirm.audit.audit_text", watched)
    file, out = prices(made), tmp_path / "out"
    write_cost_file(tmp_path / "eager.json", file)
    write_cost_file(tmp_path / "compiled.json", replace(file, execution=COMPILED))
    run = ["confirm", "--trace", str(made.folder / "trace"), "--execution", "compiled", "--out", str(out)]
    err = refusal_of(*run, "--cost", tmp_path / "eager.json")
    assert "was measured with execution eager, and this run has compiled" in err
    assert "simlab profile --execution compiled" in err
    assert "compiled, float32 on " in output_of(*run, "--cost", tmp_path / "compiled.json")
    value = json.loads((out / "confirm.json").read_text())
    assert value["ran"]["execution"] == COMPILED
    assert {row["lossless"] for row in value["rows"] if row["lossless"] is not None} == {"exact"}
    assert audited
    assert not any("forward" in vars(layer) for target in audited for layer in target.layers)
    assert "was begun with --execution compiled; this run has none" in refusal_of(
        *run, "--resume", "--execution", "eager"
    )


def test_a_cache_is_free_as_soon_as_nobody_holds_it(pair: tuple[str, str]) -> None:
    """Each text has one, and a GPU has no memory for those that wait to be collected."""
    target = load_target(pair[0], torch.float32)
    cache = BufferCache(target)
    target.states(torch.zeros(1, 2, dtype=torch.int64), cache)
    rows = weakref.ref(cache.rows)
    gc.disable()
    try:
        del cache
        assert rows() is None
    finally:
        gc.enable()
