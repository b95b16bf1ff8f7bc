"""Our drafter is the released one: the same checkpoint gives the same logits in the authors' class."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from released_dflash import assert_close, check_growing_cache, drawn, random_drafter, their_block, theirs
from tiny_models import drafter_config

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.zlab import config_from_json, config_to_json
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.networks.drafter import PACKAGED, load_drafter, save_drafter
from simlab.real_runner.targets import builtin

CONFIGS = [
    *some(
        [
            replace(drafter_config(block_size, num_layers), num_attention_heads=heads[0], num_key_value_heads=heads[1])
            for block_size, num_layers, heads in itertools.product([4, 8, 16], [1, 2, 3], [(4, 4), (4, 2), (6, 1)])
        ],
        quick=7,
    ),
    replace(drafter_config(), attention_bias=True, rope_theta=1e6, rms_norm_eps=1e-5),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_released_class_gives_the_same_hidden_states(tmp_path: Path, config: DFlashConfig) -> None:
    """Of blocks, layers and heads of all sizes, and with biases and another rotation."""
    save_drafter(random_drafter(config, seed=config.block_size + config.num_hidden_layers), tmp_path, torch.float32)
    ours, released = load_drafter(tmp_path, torch.float32), theirs(tmp_path)
    assert (released.block_size, released.mask_token_id) == (config.block_size, config.mask_token_id)
    assert tuple(released.target_layer_ids) == config.target_layer_ids
    for start in (1, 13, 40):
        features = drawn(1, start, 3 * config.hidden_size, seed=start)
        embedded = drawn(1, 1, config.block_size, config.hidden_size, seed=start + 1)
        mine = ours(embedded, torch.tensor([[start]]), ours.context(features))
        assert_close(mine[0], their_block(released, features, embedded[0], start))


def test_a_growing_cache_is_the_released_protocol(tmp_path: Path) -> None:
    save_drafter(random_drafter(drafter_config(8, 2)), tmp_path, torch.float32)
    check_growing_cache(tmp_path, (1, 8, 3, 1, 5, 2))


def test_the_shipped_drafter_gives_the_same_logits_in_the_released_class(tmp_path: Path) -> None:
    from simlab.real_runner.drafters.dense import draft_logits
    from simlab.real_runner.models import load_models
    from simlab.real_runner.train.features import teacher_forced_features

    try:
        models = load_models(builtin.NAME, PACKAGED, "float32", "cpu")
    except ModelError as error:
        pytest.skip(f"the built-in target cannot be had here: {error}")
    target, ours, released = models.target, models.block_drafter, theirs(models.draft_folder)
    tokens = torch.tensor(
        target.tokenizer("A farmer has 12 cows and buys 7 more. How many cows are there now?").input_ids
    )
    features = teacher_forced_features(target, tokens[None], ours.config.target_layer_ids)[0]
    roots = torch.arange(1, len(tokens))
    ((_, mine),) = draft_logits(ours, target, features, tokens, roots, blocks_per_pass=len(roots))
    for row, root in enumerate(roots.tolist()):
        block = torch.tensor([[int(tokens[root]), *[ours.config.mask_token_id] * ours.config.depth]])
        hidden = their_block(released, features[None, :root], target.embedding(block), root)
        with torch.inference_mode():
            logits = target.head(hidden[:, 1:])[0]
        assert_close(mine[row].log_softmax(-1), logits.log_softmax(-1))


@settings(max_examples=examples(30))
@given(roots=st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True), seed=st.integers(0, 5))
def test_a_block_never_sees_its_own_root_or_what_follows(roots: list[int], seed: int) -> None:
    drafter = random_drafter(drafter_config(), seed)
    features, embedded = drawn(1, 20, 96, seed=seed), drawn(1, len(roots), 4, 32, seed=seed + 1)
    before = drafter(embedded, torch.tensor([roots]), drafter.context(features))[0]
    for row, root in enumerate(roots):
        changed = features.clone()
        changed[:, root:] = 100 * drawn(1, 20 - root, 96, seed=seed + 2)
        after = drafter(embedded, torch.tensor([roots]), drafter.context(changed))[0]
        assert torch.equal(before[row], after[row])
        cut = drafter(embedded[:, row : row + 1], torch.tensor([[root]]), drafter.context(features[:, :root]))[0, 0]
        assert (before[row] - cut).abs().max() < 1e-5


def test_a_block_sees_all_of_its_past_and_all_of_itself() -> None:
    drafter = random_drafter(drafter_config())
    features, embedded = drawn(1, 6, 96, seed=1), drawn(1, 1, 4, 32, seed=2)
    before = drafter(embedded, torch.tensor([[6]]), drafter.context(features))
    for position in range(6):
        changed = features.clone()
        changed[:, position] *= -1
        assert not torch.allclose(before, drafter(embedded, torch.tensor([[6]]), drafter.context(changed)))
    for slot in range(4):
        changed = embedded.clone()
        changed[:, :, slot] *= -1
        after = drafter(changed, torch.tensor([[6]]), drafter.context(features))
        assert (before - after).abs().amax(dim=(0, 1, 3)).min() > 1e-6


FIELDS = ("block_size", "mask_token_id", "target_layer_ids", "num_target_layers")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("inside", [True, False])
def test_a_field_may_stand_at_the_top_or_inside(tmp_path: Path, name: str, inside: bool) -> None:
    config = drafter_config(8)
    save_drafter(random_drafter(config), tmp_path, torch.float32)
    fields = config_to_json(config)
    nested = cast(dict[str, object], fields.pop("dflash_config"))
    value = nested.pop(name, None) or fields.pop(name)
    if inside:
        nested[name] = value
    else:
        fields[name] = value
    written = fields | {"dflash_config": nested}
    assert config_from_json(written) == config
    if name == "num_target_layers" and inside:
        return  # the released class reads it at the top only
    (tmp_path / "config.json").write_text(json.dumps(written))
    released = theirs(tmp_path)
    assert (released.block_size, released.mask_token_id) == (8, config.mask_token_id)
    assert tuple(released.target_layer_ids) == config.target_layer_ids


def test_the_config_survives_a_round_through_the_released_class(tmp_path: Path) -> None:
    config = replace(drafter_config(), rope_theta=5e5)
    save_drafter(random_drafter(config), tmp_path / "ours", torch.float32)
    theirs(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    again = load_drafter(tmp_path / "theirs", torch.float32)
    assert again.config == config
    for name, tensor in load_drafter(tmp_path / "ours", torch.float32).state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
