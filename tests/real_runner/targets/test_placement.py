"""A target that is spread: by accelerate over memory and disk, and over devices that a test pretends to have."""

from pathlib import Path

import confirm_runs
import numpy as np
import pytest
import tiny_models
import torch
from commands import failure_of, output_of, refusal_of
from depth import some

from simlab.cli.main import main
from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.confirm.audit import audit_text
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.placement import DeviceMap
from simlab.sampling.choice import Sampling

PARTS = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", *(f"model.layers.{i}" for i in range(4)))
POLICIES = ("ar", "chain", "ddtree:budget=8")
PROMPT = Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32))


def spread(first: str, second: str, family: str = "llama") -> dict[str, str]:
    """The first two layers beside the embedding, the others elsewhere."""
    tied = {"lm_head": first} if family == "qwen3" else {}
    return {part: second if part in PARTS[-2:] else first for part in PARTS} | tied


def written(models: Models, temperature: float) -> list[np.ndarray]:
    sampling = Sampling(temperature, 0, 1.0, 3)
    clock = clock_of(models.target.device)
    policies = [named.policy for named in parse_policies(POLICIES)]
    return [decode(models, policy, PROMPT, sampling, 40, clock).text for policy in policies]


@pytest.mark.parametrize("temperature", some([0.8, 0.0]))
@pytest.mark.parametrize("family", some(["llama", "qwen3"]))
def test_layers_on_disk_write_the_same_texts(tmp_path: Path, family: str, temperature: float) -> None:
    target, drafter = tiny_models.make_pair(tmp_path, family)
    whole = load_models(str(target), str(drafter), "float32", "cpu")
    parted = load_models(str(target), str(drafter), "float32", "cpu", device_map=spread("cpu", "disk", family))
    assert any(weight.device.type == "meta" for weight in parted.target.model.parameters())
    assert parted.target.placement == "layers on cpu: 2, disk: 2"
    assert whole.target.placement == ""
    for ours, theirs in zip(written(whole, temperature), written(parted, temperature), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    read = [forward_text(models.target, torch.arange(5, 60), (0, 1, 3)) for models in (whole, parted)]
    for mine, other in zip(*read, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_keys_and_values_of_several_devices_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices are names here, so that a CPU can run it; the rows of each are a tensor of its own."""
    target, drafter = tiny_models.make_pair(tmp_path)
    models = load_models(str(target), str(drafter), "float32", "cpu")
    expected = written(models, 0.0)
    pretended = tuple(torch.device(name) for name in ("cuda:0", "cuda:1", "cuda:1", "cuda:0"))
    monkeypatch.setattr(Target, "layer_devices", property(lambda self: pretended))
    for ours, theirs in zip(expected, written(models, 0.0), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_audit_may_be_of_a_target_in_pieces(tmp_path: Path) -> None:
    target = str(tiny_models.make_target(tmp_path / "target"))
    text = np.arange(30, 60, dtype=np.int32)
    sampling = Sampling(0.0, 0, 1.0, 0)
    maps: tuple[DeviceMap | None, ...] = (None, spread("cpu", "disk"))
    whole, parted = (audit_text(load_target(target, torch.float32, "cpu", one), PROMPT, text, sampling) for one in maps)
    np.testing.assert_array_equal(whole.losses, parted.losses)
    np.testing.assert_array_equal(whole.tokens, parted.tokens)


def test_an_embedding_without_a_device_is_refused(tmp_path: Path) -> None:
    target = str(tiny_models.make_target(tmp_path / "target"))
    with pytest.raises(ModelError, match="embedding of the target .* does not fit on the first device"):
        load_target(target, torch.float32, "cpu", spread("cpu", "cpu") | {"model.embed_tokens": "disk"})


@pytest.mark.thorough
def test_every_command_takes_a_spread_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a GPU is full: two layers are read from disk in each pass. What is recorded and written is the same."""
    made = confirm_runs.make(tmp_path)
    given, text = made.models, ("--prompts", str(tmp_path / "prompts.jsonl"), "--max-new-tokens", "16")

    def full(name: str, dtype: torch.dtype, device: str = "cpu", device_map: DeviceMap | None = None) -> Target:
        assert device_map == "auto"
        return load_target(name, dtype, device, spread("cpu", "disk"))

    monkeypatch.setattr("simlab.real_runner.models.load_target", full)
    more = ("--device-map", "auto")
    assert main(["record", *given, *text, "--out", str(tmp_path / "spread"), *more]) == 0
    for path in (tmp_path / "trace").glob("*.parquet"):
        assert path.read_bytes() == (tmp_path / "spread" / path.name).read_bytes()
    cost = tmp_path / "cost.json"
    grid = ("--node-counts", "0,8", "--contexts", "16,160", "--repeats", "2", "--out", str(cost))
    assert main(["profile", *given, *grid, *more]) == 0
    assert "(layers on cpu: 2, disk: 2)" in cost.read_text()
    confirm = ("confirm", *given, "--trace", str(tmp_path / "trace"), "-p", "ddtree:budget=8", "--cost", str(cost))
    assert main([*confirm, "--out", str(tmp_path / "run"), *more]) == 0
    monkeypatch.undo()
    assert "was measured with device" in refusal_of(*confirm, "--out", tmp_path / "other")


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("record", ("--device", "cpu,cpu"), "--device cpu,cpu; leave"),
        ("profile", ("--batch", "2"), "--batch 2; leave"),
        ("profile", ("--execution", "compiled"), "--execution compiled; leave"),
        ("confirm", ("--batch", "2", "--batch-invariant"), "--batch 2 and --batch-invariant; leave"),
        ("confirm", ("--audit-device", "cuda:99"), "cuda:99"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, command: str, more: tuple[str, ...], said: str) -> None:
    text = ("--prompts", "p.jsonl") if command == "record" else ()
    assert said in refusal_of(command, *text, "--out", tmp_path / "out", "--device-map", "auto", *more)


def test_where_there_are_gpus_they_must_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else files would name a CPU for what a GPU did."""
    target, drafter = tiny_models.make_pair(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ModelError, match="give --device cuda"):
        load_models(str(target), str(drafter), "float32", "cpu", device_map="auto")


@pytest.mark.parametrize(("asked", "device", "device_map"), [("auto", "cpu", "auto"), ("cpu", "cpu", None)])
def test_the_audit_runs_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, device: str, device_map: str | None
) -> None:
    made, loaded = confirm_runs.make(tmp_path), list[tuple[object, ...]]()

    def remembered(name: str, dtype: torch.dtype, device: str = "cpu", device_map: DeviceMap | None = None) -> Target:
        loaded.append((dtype, device, device_map))
        return load_target(name, dtype, device, device_map)

    monkeypatch.setattr("simlab.real_runner.confirm.audit.load_target", remembered)
    options = ConfirmOptions(tmp_path / "run", dtype="bfloat16", audit_device=asked)
    assert not confirm_runs.confirmed(made, options).has_failed
    assert loaded == [(torch.float32, device, device_map)]


@pytest.mark.thorough
@pytest.mark.parametrize("now", ["", " --time-limit 0"])
def test_an_audit_that_does_not_fit_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    made = confirm_runs.make(tmp_path)
    trace, out = ("--trace", str(tmp_path / "trace")), ("--out", str(tmp_path / "run"))
    command = ["confirm", *made.models, *trace, *out, "-p", "ddtree:budget=8", "--dtype", "bfloat16"]
    command += ["--repeats", "1"] + (["--time-limit", "60"] if now else [])

    def too_large(*_given: object) -> Target:
        raise RuntimeError("CUDA out of memory. Tried to allocate 30 GiB.")

    monkeypatch.setattr("simlab.real_runner.confirm.audit.load_target", too_large)
    err = failure_of(*command)
    assert f"for the audit give --resume{now} --audit-device cpu" in err
    monkeypatch.undo()
    monkeypatch.setattr("simlab.real_runner.confirm.confirm.decode", None)
    assert "ddtree:budget=8" in output_of(
        *command, "--resume", *(("--time-limit", "0") if now else ()), "--audit-device", "cpu"
    )
