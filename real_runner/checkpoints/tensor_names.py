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
_OF_A_LAYER = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


def layer_names(config: DFlashConfig) -> Iterator[str]:
    """The tensors that every drafter of a configuration has."""
    yield from ("fc.weight", "hidden_norm.weight", "norm.weight")
    for layer in range(config.num_hidden_layers):
        yield from (f"layers.{layer}.{part}" for part in _OF_A_LAYER)
        for kind in "qkvo":
            yield f"layers.{layer}.self_attn.{kind}_proj.weight"
            if config.attention_bias:
                yield f"layers.{layer}.self_attn.{kind}_proj.bias"


def check_names(config: DFlashConfig, names: Iterable[str], place: object) -> None:
    """Refuse tensors that a drafter of this configuration does not consist of.

    Args:
        config: of the checkpoint.
        names: of its tensors.
        place: where it lies, for the message.

    Raises:
        ModelError: some are missing, or are parts of another kind of drafter.
    """
    present, expected = set(names), set(layer_names(config))
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
