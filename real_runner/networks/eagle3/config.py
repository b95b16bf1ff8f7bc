"""What an EAGLE-3 head is: its configuration, how far its trees reach, its ``config.json``. Nothing here needs torch.

The released class is `LlamaForCausalLMEagle3` (Li and others 2025, arXiv 2503.01840): a Llama configuration with
``draft_vocab_size``. SpecForge, like sglang, names the tapped layers in
``eagle_config.eagle_aux_hidden_state_layer_ids``, by the layers whose outputs they are, counted from 0.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from simlab.channels import POOL
from simlab.channels.rows import num_beam_nodes
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    BESIDE_THE_LAYERS,
    EMBEDDING,
    HEAD,
    IGNORED,
    check_classes,
    check_keys,
    classes_of,
    flag_of,
    integer,
    layer_numbers,
    number,
    rotary_base,
    typed,
)
from simlab.real_runner.checkpoints.layout import Fields, layout_alone
from simlab.real_runner.checkpoints.weights import check_numbers, draft_ids
from simlab.real_runner.drafters.config import MOST_SLOTS, check_counts, check_taps, check_within
from simlab.real_runner.networks.network import (
    BYTES_OF_NODE,
    Network,
    Reach,
    Tensors,
    check_settings,
    reach_with,
)

_LARGEST = 1 << 24
_COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "target_hidden_size",
    "max_position_embeddings",
)
_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
NUM_DEFAULT_TAPS = 3
"""Layers of the target that are read where a checkpoint names none."""

DEFAULT_BLOCK = 8
"""Root and a chain of seven tokens: as many passes as the published tree has."""


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """Sizes and choices of one head; sizes in elements, ids in the target's vocabulary.

    Attributes:
        vocab_size: of the target.
        target_hidden_size: of the target's states.
        target_layer_ids: the target's layers whose outputs are read, from 0; empty: those of the release, which
            `for_target` fills in.
        num_target_layers: None where the checkpoint does not say.
        draft_vocab_size: tokens that it can propose; None: all of the target's.
        attention_bias: whether the projections of the attention have biases.
        fc_norm: whether each tapped state is normed before it is fused.
        norm_before_residual: whether the normed state, and not the state itself, is added to what attention says.
        norm_output: whether the head's next input is its output behind the last norm.
        block_size: root and drafted tokens of a chain, where the head is a trace's drafter; no checkpoint says it.
    """

    draft_name: ClassVar[str] = "eagle3"
    is_chain: ClassVar[bool] = True
    root_seen: ClassVar[bool] = True
    no_blocks: ClassVar[str] = "an EAGLE-3 head, which drafts token by token"
    mask_token_id: ClassVar[None] = None
    tap_offset: ClassVar[None] = None
    noise: ClassVar[None] = None
    num_masks: ClassVar[int] = 0
    output_multiplier: ClassVar[float] = 1.0
    final_logit_softcapping: ClassVar[None] = None

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    target_hidden_size: int
    target_layer_ids: tuple[int, ...] = ()
    num_target_layers: int | None = None
    draft_vocab_size: int | None = None
    max_position_embeddings: int = 8192
    attention_bias: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    block_size: int = DEFAULT_BLOCK

    def __post_init__(self) -> None:
        check_counts("an EAGLE-3 head's", {name: getattr(self, name) for name in _COUNTS}, _LARGEST)
        if self.head_dim % 2 or self.num_attention_heads % self.num_key_value_heads:
            raise ModelError(
                "an EAGLE-3 head needs an even head_dim, and key-value heads that its attention heads share evenly; "
                f"got {self.head_dim}, {self.num_key_value_heads} and {self.num_attention_heads}"
            )
        check_within("an EAGLE-3 head's rms_norm_eps", self.rms_norm_eps, 1e-12, 1.0)
        check_within("an EAGLE-3 head's rope_theta", self.rope_theta, 1.0, 1e30)
        if not 2 <= self.block_size <= MOST_SLOTS:
            raise ModelError(
                f"a chain has at least 2 and at most {MOST_SLOTS:,} tokens, the root counted; got {self.block_size}"
            )
        if self.draft_vocab_size is not None and not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise ModelError(f"draft_vocab_size {self.draft_vocab_size} is not within the {self.vocab_size} tokens")
        if self.target_layer_ids:
            check_taps(self.target_layer_ids, self.num_target_layers)

    @property
    def kind(self) -> str:
        return "EAGLE-3 head"

    @property
    def depth(self) -> int:
        """D, the tokens of a drafted chain."""
        return self.block_size - 1

    @property
    def num_taps(self) -> int:
        """Layers of the target that are read."""
        return len(self.target_layer_ids) or NUM_DEFAULT_TAPS

    @property
    def num_tokens(self) -> int:
        """Tokens that it can propose."""
        return self.draft_vocab_size or self.vocab_size

    def with_block(self, size: int) -> "Eagle3Config":
        """This head drafting chains of another length, the root counted."""
        return replace(self, block_size=size)

    def of_vocabulary(self, size: int) -> "Eagle3Config":
        """This configuration with so many tokens of the target."""
        return replace(self, vocab_size=size)

    def for_target(self, num_layers: int) -> "Eagle3Config":
        """This configuration where the target has so many layers.

        Where none are named, the release reads the inputs of layers 2, L/2 and L - 3, counted from 0 (Li and others
        2025, `modeling_llama_kv.py`): the outputs of the ones before.
        """
        if self.target_layer_ids:
            return self
        taps = (1, num_layers // 2 - 1, num_layers - 4)
        check_taps(taps, num_layers)
        return replace(self, target_layer_ids=taps)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, inner, head = self.hidden_size, self.intermediate_size, self.head_dim
        queries, keys = self.num_attention_heads * head, self.num_key_value_heads * head
        yield "fc.weight", (hidden, self.num_taps * self.target_hidden_size)
        yield "norm.weight", (hidden,)
        if self.fc_norm:
            yield from ((f"fc_norm.{number}.weight", (self.target_hidden_size,)) for number in range(self.num_taps))
        yield from ((f"midlayer.{name}.weight", (hidden,)) for name in _NORMS)
        yield from ((f"midlayer.mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
        yield "midlayer.mlp.down_proj.weight", (hidden, inner)
        shapes = {"q": (queries, 2 * hidden), "k": (keys, 2 * hidden), "v": (keys, 2 * hidden), "o": (hidden, queries)}
        for name, shape in shapes.items():
            yield f"midlayer.self_attn.{name}_proj.weight", shape
            if self.attention_bias:
                yield f"midlayer.self_attn.{name}_proj.bias", shape[:1]

    def check(self, tensors: Tensors, location: object) -> None:
        """Refuse tensors with which this head cannot be built; names are the released ones, ``midlayer`` the layer."""
        shapes = dict(self.shapes())
        missing, foreign = (
            sorted(set(shapes) - set(tensors)),
            sorted(set(tensors) - {*shapes, *BESIDE_THE_LAYERS, *IGNORED}),
        )
        if self.draft_vocab_size is not None and HEAD not in tensors:
            missing.append(HEAD)
        if missing and foreign and foreign[0].startswith("model."):
            raise ModelError(
                f"the EAGLE-3 head in {location} names its tensors {foreign[0]} and the like; simlab reads the "
                "released names, which have no `model.` before them: rename them, or choose a release that has those"
            )
        if missing or foreign:
            what = "lacks" if missing else "holds, beside its own tensors,"
            listed = ", ".join((missing or foreign)[:3])
            raise ModelError(f"the EAGLE-3 head in {location} {what} {listed}; fetch or train it again")
        shapes |= {
            EMBEDDING: (self.vocab_size, self.hidden_size),
            HEAD: (self.num_tokens, self.hidden_size),
        }
        check_numbers(shapes, tensors, location)
        draft_ids(self, tensors, location)

    def lines(self) -> list[tuple[str, str]]:
        taps = ", ".join(map(str, self.target_layer_ids)) or "1, L/2 - 1 and L - 4 of L, as its release does"
        return [
            ("head", f"EAGLE-3: a token given the text and its path; {self.hidden_size} wide; it needs no drafter"),
            ("reads", f"outputs of the target's layers {taps}, counted from 0"),
            ("vocabulary", f"{self.num_tokens:,} of the target's {self.vocab_size:,} tokens"),
        ]


@dataclass(frozen=True, slots=True)
class Eagle3Reach(Reach):
    """How many nodes a pool has: those of the root's children, and of the children of each beam.

    The defaults are those of EAGLE-3's released class; EAGLE-2 goes 5 steps.

    Attributes:
        beam: b, nodes of a step that go through the head.
        top_k: R, children that are kept of each.
        steps: passes below the root's own; the deepest node lies one deeper.
    """

    kind: ClassVar[str] = POOL
    needs_drafter: ClassVar[bool] = False
    score_bytes: ClassVar[float] = BYTES_OF_NODE

    beam: int = 10
    top_k: int = 10
    steps: int = 7

    def __post_init__(self) -> None:
        check_settings(self, "an EAGLE-3 pool", *_OF_REACH)

    @property
    def depth(self) -> int:
        """How deep the deepest nodes lie."""
        return self.steps + 1

    def settings(self, depth: int = 0) -> dict[str, object]:
        return {"depth": self.depth, "beam": self.beam, "top_k": self.top_k, "steps": self.steps}

    def num_scores(self, depth: int = 0) -> int:
        return num_beam_nodes(self.beam, self.top_k, self.steps)


_CLASS, _FIELD, _NESTED, _TAPS = (
    "LlamaForCausalLMEagle3",
    "draft_vocab_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
)
_OF_REACH = ("beam", "top_k", "steps")
_OTHERS = ("speculators_model_type", "block_size", "dflash_config", "treeflash_config", "taps_config")
_OWN_CLASSES = (_CLASS, "Eagle3LlamaForCausalLM")
_FLAGS = ("attention_bias", "fc_norm", "norm_before_residual", "norm_output")
_READ = (
    *(_FIELD, _NESTED, *_FLAGS, "num_target_layers", "target_hidden_size", "rope_theta", "rope_scaling"),
    *("rope_parameters", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim"),
    *("num_key_value_heads", "rms_norm_eps", "vocab_size", "max_window_layers", "sliding_window", "hidden_act"),
)
# Of the nested object: what this head does in any case.
_AS_IT_IS: dict[str, object] = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}


def is_eagle3(fields: Fields) -> bool:
    """Whether a ``config.json`` is of an EAGLE-3 head: by its class, or by a vocabulary of a drafter."""
    says_so = _FIELD in fields or not set(classes_of(fields)).isdisjoint(_OWN_CLASSES)
    return says_so and not any(name in fields for name in _OTHERS)


def eagle3_from_json(fields: Fields) -> Eagle3Config | None:
    """The head of a checkpoint; None where it is another one."""
    if not is_eagle3(fields):
        return None
    where, nested = "the EAGLE-3 head's config.json", fields.get(_NESTED)
    inner = typed({} if nested is None else nested, dict, f"{where} holds {_NESTED}", "an object")
    check_classes(fields, (*_OWN_CLASSES, "LlamaForCausalLM"), "EAGLE-3 heads")
    check_keys(fields, _READ, where)
    as_it_is = [name for name, value in _AS_IT_IS.items() if inner.get(name) == value]
    check_keys(inner, (_TAPS, *as_it_is), f"{_NESTED} of {where}", nothing=(None,))
    own_layers = fields.get("num_hidden_layers")
    if own_layers is not None and integer(own_layers) != 1:
        raise ModelError(f"this EAGLE-3 head has {own_layers} layers, and simlab runs those of one")
    hidden_size, heads = integer(fields.get("hidden_size")), integer(fields.get("num_attention_heads"))
    vocab_size, own = integer(fields.get("vocab_size")), fields.get(_FIELD)
    if fields.get("hidden_act") not in (None, "silu"):
        raise ModelError("this EAGLE-3 head has another activation than silu, which simlab does not run")
    layers, taps = fields.get("num_target_layers"), inner.get(_TAPS)
    # What is left out has the default of a Llama configuration in transformers; other model types have others.
    is_llama = fields.get("model_type") in (None, "llama")
    defaults = {"num_key_value_heads": heads, "head_dim": hidden_size // max(heads, 1)} if is_llama else {}
    sizes = {**defaults, **{name: value for name, value in fields.items() if value is not None}}
    return Eagle3Config(
        hidden_size=hidden_size,
        intermediate_size=integer(fields.get("intermediate_size")),
        num_attention_heads=heads,
        num_key_value_heads=integer(sizes.get("num_key_value_heads")),
        head_dim=integer(sizes.get("head_dim")),
        rms_norm_eps=number(sizes.get("rms_norm_eps", 1e-6)),
        rope_theta=rotary_base(fields),
        vocab_size=vocab_size,
        target_hidden_size=integer(sizes.get("target_hidden_size", hidden_size)),
        target_layer_ids=() if taps is None else layer_numbers(taps),
        num_target_layers=None if layers is None else integer(layers),
        draft_vocab_size=None if own in (None, vocab_size) else integer(own),
        max_position_embeddings=integer(sizes.get("max_position_embeddings", 2048)),
        attention_bias=flag_of(fields, "attention_bias"),
        fc_norm=flag_of(fields, "fc_norm"),
        norm_before_residual=flag_of(fields, "norm_before_residual"),
        norm_output=flag_of(fields, "norm_output"),
    )


def eagle3_to_json(config: Eagle3Config) -> dict[str, object]:
    """The fields of a head."""
    named = {_NESTED: {_TAPS: list(config.target_layer_ids)}} if config.target_layer_ids else {}
    sizes = (
        *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("rms_norm_eps", "rope_theta", "vocab_size", "target_hidden_size", "max_position_embeddings"),
    )
    return {
        "architectures": [_CLASS],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        **{name: getattr(config, name) for name in sizes},
        _FIELD: config.num_tokens,
        **({} if config.num_target_layers is None else {"num_target_layers": config.num_target_layers}),
        **{name: True for name in _FLAGS if getattr(config, name)},
        **named,
    }


EAGLE3 = Network(
    what="an EAGLE-3 head",
    layout=replace(
        layout_alone(
            "eagle3",
            _FIELD,
            "EAGLE-3, as its authors release it",
            "this is an EAGLE-3 head and no DFlash drafter, which is wanted here; record with it alone, `simlab record "
            "--draft CHECKPOINT`, or add its trees to a trace, `simlab record --trace DIR --add-channel "
            "eagle3=CHECKPOINT`",
        ),
        recognises=is_eagle3,
    ),
    reads=eagle3_from_json,
    reach=lambda fields, settings, is_base: reach_with("an EAGLE-3 head", settings, _OF_REACH, Eagle3Reach),
    module="simlab.real_runner.networks.eagle3.pool",
    needs_drafter=False,
    draft_name=Eagle3Config.draft_name,
    first_policies="-p chain -p eagle3:budget=59",
    # Some releases number the only layer.
    tensor_name=lambda name: re.sub(r"^layers\.0\.", "midlayer.", name),
)
