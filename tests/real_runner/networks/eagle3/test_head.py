"""The layer of an EAGLE-3 head against a restatement of it, and against itself pass by pass."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from random_eagle3 import eagle3_config, random_eagle3

from simlab.errors import ModelError
from simlab.real_runner.networks.eagle3.config import Eagle3Config
from simlab.real_runner.networks.eagle3.head import Eagle3Head, KeyValues, joined

CONFIG = eagle3_config(16, 23, 6)
VARIANTS = {
    "released": CONFIG,
    "normed residual": replace(CONFIG, norm_before_residual=True),
    "normed output": replace(CONFIG, norm_output=True),
    "normed taps": replace(CONFIG, fc_norm=True),
    "biases": replace(CONFIG, attention_bias=True),
}


def head_of(config: Eagle3Config) -> Eagle3Head:
    return random_eagle3(config, seed=3).double()


def inputs(config: Eagle3Config, length: int = 9) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    shape = (2, length, config.hidden_size)
    return torch.randn(shape).double(), torch.randn(shape).double(), torch.arange(length).expand(2, -1)


def normed(weights: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return weights[f"{name}.weight"] * (wide / (wide.square().mean() + 1e-6).sqrt()).double()


def plain_output(
    head: Eagle3Head, hidden: torch.Tensor, embedded: torch.Tensor, positions: torch.Tensor, last: int
) -> torch.Tensor:
    """The output at one position of one sequence, head by head and key by key."""
    config, weights = head.config, dict(head.state_dict())

    def projected(name: str, place: int) -> torch.Tensor:
        both = torch.cat(
            [
                normed(weights, "midlayer.input_layernorm", embedded[place]),
                normed(weights, "midlayer.hidden_norm", hidden[place]),
            ]
        )
        made: torch.Tensor = weights[f"midlayer.self_attn.{name}_proj.weight"] @ both
        bias = weights.get(f"midlayer.self_attn.{name}_proj.bias")
        return (made if bias is None else made + bias).view(-1, config.head_dim)

    def turned(x: torch.Tensor, place: int) -> torch.Tensor:
        half = config.head_dim // 2
        turned = torch.empty_like(x)
        for i in range(half):
            angle = torch.tensor(float(positions[place])) * (1.0 / (config.rope_theta ** (2 * i / config.head_dim)))
            cos, sin = angle.cos().double(), angle.sin().double()
            turned[:, i], turned[:, half + i] = (
                x[:, i] * cos - x[:, half + i] * sin,
                x[:, half + i] * cos + x[:, i] * sin,
            )
        return turned

    queries, shared = turned(projected("q", last), last), config.num_attention_heads // config.num_key_value_heads
    keys = [turned(projected("k", index), index) for index in range(last + 1)]
    values = [projected("v", index) for index in range(last + 1)]
    mixed = []
    for number, query in enumerate(queries):
        scores = torch.stack([query @ key[number // shared] for key in keys]) * config.head_dim**-0.5
        shares = scores.float().softmax(0).double()
        mixed.append(sum(share * value[number // shared] for share, value in zip(shares, values, strict=True)))
    attended = weights["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
    if config.attention_bias:
        attended += weights["midlayer.self_attn.o_proj.bias"]
    before = normed(weights, "midlayer.hidden_norm", hidden[last]) if config.norm_before_residual else hidden[last]
    x = before + attended
    inner = normed(weights, "midlayer.post_attention_layernorm", x)
    gate, up, down = (weights[f"midlayer.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
    x = x + down @ (torch.nn.functional.silu(gate @ inner) * (up @ inner))
    return normed(weights, "norm", x) if config.norm_output else x


@pytest.mark.parametrize("name", VARIANTS)
def test_the_layer_is_its_restatement(name: str) -> None:
    head = head_of(VARIANTS[name])
    hidden, embedded, positions = inputs(head.config)
    output, _ = head(hidden, embedded, positions)
    for sequence in range(2):
        for last in (0, 4, 8):
            expected = plain_output(head, hidden[sequence], embedded[sequence], positions[sequence], last)
            torch.testing.assert_close(output[sequence, last], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cuts", [(3,), (1, 2, 8)])
def test_parts_of_a_text_are_the_whole(cuts: tuple[int, ...]) -> None:
    head = head_of(CONFIG)
    arguments = inputs(CONFIG)
    whole, kept = head(*arguments)
    past, parts = list[KeyValues](), []
    for first, last in zip((0, *cuts), (*cuts, 9), strict=True):
        part, new = head(*(argument[:, first:last] for argument in arguments), past)
        parts.append(part)
        past.append(new)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(joined(past).keys, kept.keys, rtol=0, atol=1e-6)


def test_what_is_hidden_changes_nothing() -> None:
    head = head_of(CONFIG)
    hidden, embedded, positions = inputs(CONFIG)
    mask = torch.ones(9, 9, dtype=torch.bool).triu(1)
    mask[8, 2:6] = True
    output, _ = head(hidden, embedded, positions, (), mask)
    hidden[:, 2:6], embedded[:, 3:6] = 7.0, -3.0
    again, _ = head(hidden, embedded, positions, (), mask)
    assert torch.equal(output[:, 8], again[:, 8])
    assert not torch.equal(output[:, 7], again[:, 7])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": 0}, "hidden_size must be at least 1"),
        ({"head_dim": 5}, "even head_dim"),
        ({"num_key_value_heads": 3}, "share evenly"),
        ({"rope_theta": 0.5}, "rope_theta must be from 1"),
        ({"draft_vocab_size": 24}, "draft_vocab_size 24 is not within the 23 tokens"),
        ({"target_layer_ids": (0, 6)}, "6"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        replace(CONFIG, **change)
