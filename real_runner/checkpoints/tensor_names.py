"""Which tensors a DFlash checkpoint consists of, by their names."""

from collections.abc import Iterable, Iterator

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import DFlashConfig

EMBEDDING, HEAD, OFFSETS, MASK = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"
BESIDE_THE_LAYERS = (EMBEDDING, HEAD, OFFSETS, MASK)
"""What a checkpoint may hold of its own beside the layers: embedding, head, and the map of its vocabulary."""

IGNORED = ("verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's weights, which speculators uses in training only."""

_PARTS_OF_OTHERS = {
    "qkv_proj": "fused projections of queries, keys and values (Laguna)",
    "g_proj": "gated attention (Laguna)",
    "aux_hidden_norms": "a norm for each tapped layer",
    "candidate_selector": "the candidate selector of DFlash2",
    "attention_conv": "the convolutions of DFlash2",
    "mlp_conv": "the convolutions of DFlash2",
    "markov_head": "the Markov head of DSpark",
    "confidence_head": "a confidence head",
    "midlayer": "the layer of EAGLE-3",
}


def layer_shapes(config: DFlashConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that every drafter of a configuration has, each with its shape."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    yield "fc.weight", (hidden, len(config.target_layer_ids) * hidden)
    yield from (("hidden_norm.weight", (hidden,)), ("norm.weight", (hidden,)))
    projections = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
    for layer in (f"layers.{number}" for number in range(config.num_hidden_layers)):
        yield from ((f"{layer}.{name}_layernorm.weight", (hidden,)) for name in ("input", "post_attention"))
        yield from ((f"{layer}.self_attn.{name}_norm.weight", (head,)) for name in "qk")
        yield from ((f"{layer}.mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
        for name, shape in projections.items():
            yield f"{layer}.self_attn.{name}_proj.weight", shape
            if config.attention_bias:
                yield f"{layer}.self_attn.{name}_proj.bias", shape[:1]


def check_names(config: DFlashConfig, names: Iterable[str], place: object) -> None:
    """Refuse tensors that a drafter of this configuration does not consist of.

    Args:
        config: of the checkpoint.
        names: of its tensors.
        place: where it lies, for the message.
    """
    present, expected = set(names), {name for name, _ in layer_shapes(config)}
    missing, foreign = sorted(expected - present), sorted(present - expected - {*BESIDE_THE_LAYERS, *IGNORED})
    named = {
        what: name for name in reversed(foreign) for part, what in _PARTS_OF_OTHERS.items() if f".{part}" in f".{name}"
    }
    if named:
        parts = ", ".join(f"{what}: {name}" for what, name in sorted(named.items())[:3])
        raise ModelError(f"the drafter in {place} has parts that simlab does not run ({parts})")
    if missing or foreign:
        shown = ", ".join((missing or foreign)[:3])
        what = "lacks" if missing else "holds, beside those of DFlash,"
        raise ModelError(f"the drafter in {place} {what} {shown}; simlab runs DFlash checkpoints only")
    if config.draft_vocab_size is None:
        return
    if HEAD not in present:
        raise ModelError(
            f"the drafter in {place} has {config.draft_vocab_size} tokens of its own and no lm_head for them"
        )
    if not present & {OFFSETS, MASK}:
        raise ModelError(f"the drafter in {place} has a vocabulary of its own and no d2t or t2d that says which")
