"""``--tap-offset auto`` finds how a checkpoint numbers the target's layers, and says so when it cannot."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import refusal_of
from tiny_models import drafter_config, make_drafter, make_target, write_prompts

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.drafters.dense import block_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.networks.drafter import save_drafter
from simlab.real_runner.record.prompts import Message, render
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.tap_offset import (
    OffsetTrial,
    PromptAndText,
    clearly_best,
    parse_tap_offset,
    readings,
    settle_tap_offset,
    try_offset,
)
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace

NUM_STEPS = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts") / "prompts.jsonl", 6)


@pytest.fixture(scope="module")
def texts(place: Path, prompts: Path) -> list[PromptAndText]:
    """What the target writes after the prompts of the file, as ``record`` reads them."""
    target = load_target(str(place), torch.float32)
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    asked = [render(target.tokenizer, (Message("user", row["turns"][0]),), {}) for row in rows]
    written = generate(target, asked, [0] * len(asked), Sampling(0.0, 0, 1.0, 0), 48)
    return [
        (np.array(ids, np.int32), np.array(answer, np.int32)) for ids, (answer, _) in zip(asked, written, strict=True)
    ]


def fitted(target: Target, texts: list[PromptAndText]) -> DFlashDrafter:
    """A drafter that has learnt these very texts by heart, from the states behind layers 0, 1 and 2."""
    torch.manual_seed(0)
    drafter = DFlashDrafter(drafter_config(4, 1))
    optimiser = torch.optim.AdamW(drafter.parameters(), lr=5e-3)
    read = []
    for prompt, text in texts:
        tokens = torch.from_numpy(np.concatenate([prompt, text]).astype(np.int64))
        with torch.no_grad():
            read.append((tokens, len(prompt), forward_text(target, tokens, (0, 1, 2))[0].clone()))
    for step in range(NUM_STEPS):
        tokens, start, features = read[step % len(read)]
        roots = torch.arange(start, max(start, len(tokens) - 3))
        if not len(roots):
            continue
        context = drafter.context(features[None])
        logits = block_logits(drafter, target, tokens[roots], roots, context)
        truth = torch.stack([tokens[roots + depth] for depth in (1, 2, 3)], dim=1)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), truth.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return drafter.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def right(place: Path, texts: list[PromptAndText], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose layer numbers are those of z-lab's layout."""
    folder = tmp_path_factory.mktemp("right")
    save_drafter(fitted(load_target(str(place), torch.float32), texts), folder, torch.float32)
    return folder


@pytest.fixture(scope="module")
def planted(right: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights, whose numbers count the embedding as state 0 though the layout says otherwise."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "model.safetensors").write_bytes((right / "model.safetensors").read_bytes())
    fields = json.loads((right / "config.json").read_text())
    fields["dflash_config"]["target_layer_ids"] = [1, 2, 3]
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def loaded(place: Path, draft: Path, offset: int | None = None) -> Models:
    return load_models(str(place), str(draft), "float32", "cpu", offset)


def test_a_planted_wrong_offset_is_found(place: Path, right: Path, planted: Path, texts: list[PromptAndText]) -> None:
    for draft, offset in ((right, 1), (planted, 0)):
        models = loaded(place, draft)
        shares = {
            config.tap_offset: try_offset(models, config, texts, 128).agreement_share for config in readings(models)
        }
        assert shares[offset] > 0.5 > 2 * shares[1 - offset]
        for given in (texts, [(prompt, np.empty(0, np.int32)) for prompt, _ in texts]):
            settle_tap_offset(models, "auto", given)
            assert (models.block_drafter.config.tap_offset, models.block_drafter.config.target_layer_ids) == (
                offset,
                (0, 1, 2),
            )
    settle_tap_offset(models, None, texts)
    assert loaded(place, planted, 0).drafter.config.target_layer_ids == (0, 1, 2)
    assert loaded(place, planted).drafter.config.target_layer_ids == (1, 2, 3)


def test_a_drafter_that_knows_nothing_leaves_it_unclear(
    place: Path, tmp_path: Path, texts: list[PromptAndText]
) -> None:
    models = loaded(place, make_drafter(tmp_path))
    with pytest.raises(ModelError, match="cannot tell which layers") as caught:
        settle_tap_offset(models, "auto", texts)
    assert "\n" not in str(caught.value)


def test_clearly_best() -> None:
    def trial(offset: int, hits: list[float]) -> OffsetTrial:
        return OffsetTrial(offset, sum(hits) / (3 * len(hits)), np.array(hits), 3 * len(hits))

    good, bad = trial(0, [2.0, 1.0] * 20), trial(1, [0.0, 1.0] * 20)
    assert clearly_best([good, bad]).offset == clearly_best([bad, good]).offset == 0
    assert clearly_best([bad]).offset == 1
    with pytest.raises(ModelError, match="cannot tell"):
        clearly_best([good, trial(1, [1.0, 2.0] * 20)])
    with pytest.raises(ModelError, match="cannot tell"):
        clearly_best([trial(0, [1.0, 0.0]), trial(1, [0.0, 0.0])])
    with pytest.raises(ModelError, match="do not fit"):
        clearly_best([])


def test_readings_that_leave_the_target_are_not_tried(place: Path, tmp_path: Path) -> None:
    save_drafter(DFlashDrafter(replace(drafter_config(), target_layer_ids=(-1, 2))), tmp_path, torch.float32)
    assert [config.tap_offset for config in readings(loaded(place, tmp_path))] == [1]
    assert [parse_tap_offset(choice) for choice in (None, "auto", "0", "1")] == [None, None, 0, 1]


def test_record_and_confirm_with_the_offset_that_was_found(
    tmp_path: Path, place: Path, planted: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agreement comes back, the manifest says how, and ``confirm`` reads as was recorded."""
    models = ["--target", str(place), "--draft", str(planted)]
    shares = {}
    for choice in ("auto", "1"):
        trace = tmp_path / choice
        kept = ["--max-new-tokens", "24", "--min-width", "8", "--exact-budget", "16", "--tap-offset", choice]
        assert main(["record", *models, "--prompts", str(prompts), "--out", str(trace), *kept]) == 0
        columns = [record.drafts["dflash"] for record in open_trace(trace).records(["dflash"])]
        right = sum(int(((column.true_rank == 0) & column.valid).sum()) for column in columns)
        shares[choice] = right / sum(int(column.valid.sum()) for column in columns)
    assert "--tap-offset auto: 0 (0: " in capsys.readouterr().err
    assert shares["auto"] > 0.5 > 2 * shares["1"]
    assert open_trace(tmp_path / "auto").manifest.draft_sets["dflash"].tap_offset == 0
    confirm = ["confirm", "--trace", str(tmp_path / "auto"), "-p", "ddtree:budget=4", "--limit", "1"]
    assert main([*confirm, "--out", str(tmp_path / "c")]) == 0
    assert "was recorded with --tap-offset 0" in refusal_of(*confirm, "--out", tmp_path / "d", "--tap-offset", "1")
