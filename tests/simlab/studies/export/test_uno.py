"""What SGLang drafts with an adapter of UNO's: its flags, and what it refuses is refused."""

import ast
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_shapes import yaml_mapping
from engine_wheels import SGLANG, wheel_files
from random_adapter import make_adapter
from tiny_models import VOCAB_SIZE, make_target, write_prompts

from simlab.errors import SimlabError, UsageError
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.studies.engines.advise import advise
from simlab.studies.export.export import export
from simlab.studies.optimize.optimize import optimize

DEPTH = 5


def recorded(folder: Path, temperature: float) -> Path:
    target = make_target(folder / "target")
    adapter = make_adapter(folder / "adapter", target, num_masks=DEPTH, noise=Noise(below=VOCAB_SIZE))
    prompts = write_prompts(folder / "prompts.jsonl", 4)
    out = folder / f"trace-{temperature}"
    return record(
        RecordOptions(str(target), str(adapter), out=out, prompts=prompts, max_new_tokens=12, temperature=temperature)
    )


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("uno"), 0.0)


def flags_of(trace: Path, typed: str) -> dict[str, object]:
    """The flags of a file, which are those of the line to paste."""
    made = export("sglang", typed, trace=trace)
    flags: dict[str, object] = yaml_mapping(made.text)
    line = made.notes[-1].split()
    assert line[:3] == ["python", "-m", "sglang.launch_server"]
    assert line[3::2] == [f"--{name}" for name in flags]
    assert line[4::2] == [str(value) for value in flags.values()]
    return flags


def test_a_tree_and_a_chain_are_flags(trace: Path) -> None:
    own = {"speculative-algorithm": "UNO", "attention-backend": "fa3", "speculative-num-draft-tokens": 13}
    tree = flags_of(trace, "uno:budget=12,top_k=3")
    assert tree.items() >= (own | {"speculative-num-steps": DEPTH, "speculative-eagle-topk": 3}).items()
    assert str(tree["uno-lora-path"]).endswith("adapter")
    chain = flags_of(trace, f"self:budget={DEPTH},masked=-2,order=chain")
    assert chain.items() >= (own | {"speculative-num-draft-tokens": DEPTH + 1}).items()
    assert not any(name in chain for name in ("speculative-eagle-topk", "speculative-draft-model-path"))


def test_a_conformance_file_has_its_trees(trace: Path) -> None:
    lines = export("conformance", "uno:budget=7,top_k=3", trace=trace, limit=1).text.splitlines()
    header, *rounds = map(json.loads, lines)
    assert (header["name"], header["top_k"]) == ("uno", 3)
    drafted = [len(one["tokens"]) - 1 for one in rounds if "tokens" in one]
    assert drafted[0] == 0, "a text begins with a round that drafts nothing"
    assert max(drafted) == 7


@pytest.mark.parametrize(
    ("engine", "typed", "said"),
    [
        ("vllm", "uno:budget=7,top_k=3", "an adapter of UNO's are written for sglang, not for vllm"),
        ("sglang", "ddtree:budget=7", "take uno:budget=N,top_k=K"),
        ("sglang", "uno:budget=3,top_k=3", "trees of 6 to 14 nodes"),
        ("sglang", "uno:budget=14,top_k=3", "trees of 6 to 14 nodes, the root counted.* has 15 nodes"),
        ("sglang", "uno:budget=12,top_k=1", "of 2 candidates or more"),
        ("sglang", "self:budget=3,masked=-2,order=chain", f"take self:budget={DEPTH},masked=-2,order=chain"),
        ("sglang", f"self:budget={DEPTH},masked=0,order=chain", "passes that take turns"),
    ],
)
def test_what_the_engine_would_refuse_is_refused(trace: Path, engine: str, typed: str, said: str) -> None:
    with pytest.raises((UsageError, SimlabError), match=said):
        export(engine, typed, trace=trace)


def test_optimize_searches_what_sglang_drafts_and_exports_it(trace: Path) -> None:
    measured = {"objective": "acceptance_length", "node_cap": 14, "engine": "sglang"}
    found = optimize(trace, **measured)  # type: ignore[arg-type]
    typed = {point.typed for point in found.space.points}
    uno = {f"uno:budget={budget},top_k=2" for budget in (5, 6, 7, 8, 9)}
    assert typed >= {"ar", f"self:budget={DEPTH},masked=-2,order=chain", *uno}
    assert all(one.startswith(("uno:", "self:", "ar")) for one in typed)
    for one in typed - {"ar"}:
        assert flags_of(trace, one)["speculative-algorithm"] == "UNO"
    with pytest.raises(UsageError, match="drafts for itself; leave out --engine"):
        optimize(trace, **{**measured, "engine": "vllm"})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`simlab optimize --engine sglang` searches it"):
        advise(trace, engine="sglang")


def test_the_linear_sampler_above_temperature_0_is_refused(tmp_path: Path) -> None:
    hot = recorded(tmp_path, 0.8)
    with pytest.raises(SimlabError, match="accepts by ratios of probabilities"):
        export("sglang", f"self:budget={DEPTH},masked=-2,order=chain", trace=hot)
    assert flags_of(hot, "uno:budget=12,top_k=3")["speculative-eagle-topk"] == 3


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_sglangs_own_check_of_its_flags_agrees(trace: Path, tmp_path: Path) -> None:
    """Every width and size: what SGLang's handler of UNO's flags refuses is refused, and nothing else."""
    files = wheel_files(tmp_path, (SGLANG,), ("sglang/srt/arg_groups/",)) / "sglang" / "srt" / "arg_groups"
    declared = "".join(path.read_text() for path in (files / "fields").glob("*.py"))
    flags = flags_of(trace, "uno:budget=12,top_k=3")
    assert all(f"    {name.replace('-', '_')}: A[" in declared for name in flags)
    tree = ast.parse((files / "speculative_hook.py").read_text())
    (handler,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "_handle_uno")
    around = {
        **dict.fromkeys(("resolving_view", "resolved_view"), lambda given: given),
        "declare_resolution": lambda *_, **__: None,
        "attn_dp_enabled_of": lambda _: False,
        "attention_backends_of": lambda given: (given.attention_backend,) * 2,
        "logger": logging.getLogger(),
        "ServerArgs": object,
    }
    exec(compile(ast.Module([handler], []), "speculative_hook.py", "exec"), around)
    plain = {
        **dict.fromkeys(("tp_size", "pp_size", "attn_cp_size"), 1),
        **dict.fromkeys(("speculative_accept_threshold_single", "speculative_accept_threshold_acc"), 1.0),
        **dict.fromkeys(("enable_pdmux", "enable_two_batch_overlap", "enable_deterministic_inference"), False),
        **dict.fromkeys(("enable_strict_thinking", "enable_lora", "speculative_use_rejection_sampling"), False),
        **dict.fromkeys(("enable_mixed_chunk", "lora_paths", "speculative_draft_model_path"), None),
        "device": "cuda",
        "uno_lora_path": "x",
        "attention_backend": "fa3",
    }

    def takes(width: int, top_k: int) -> bool:
        asked = {"num_draft_tokens": width, "eagle_topk": top_k, "num_steps": DEPTH}
        given = SimpleNamespace(**plain, **{f"speculative_{name}": value for name, value in asked.items()})
        try:
            around["_handle_uno"](given)  # type: ignore[operator]
        except ValueError:
            return False
        return True

    def exports(width: int, top_k: int) -> bool:
        try:
            export("sglang", f"uno:budget={width - 1},top_k={top_k}", trace=trace)
        except SimlabError:
            return False
        return True

    for top_k in (2, 3, 16, 40):
        for width in (2, 5, 6, 7, 9, 10, 11, 13, 14, 15, 51, 52, 63, 66, 67, 100, 127, 128, 129, 160):
            assert exports(width, top_k) == takes(width, top_k), (width, top_k)
