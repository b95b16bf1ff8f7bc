"""The fields of a drafter's ``config.json``, each checked as it is read."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as shown
from typing import TypeVar

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import DFlashConfig, Markov

# Which tensors a DFlash checkpoint consists of, by their names.


EMBEDDING, HEAD, OFFSETS, MASK = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"
BESIDE_THE_LAYERS = (EMBEDDING, HEAD, OFFSETS, MASK)
"""What a checkpoint may hold of its own beside the layers: embedding, head, and the map of its vocabulary."""

IGNORED = ("verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's weights, which speculators uses in training only."""

DFLASH_CLASS = "DFlashDraftModel"
"""The class of z-lab's layout."""

# What simlab lacks for drafters of other kinds, by what they are known.


@dataclass(frozen=True, slots=True)
class ForeignHead:
    """What a published drafter has more than DFlash, which simlab does not run.

    Attributes:
        name: of the drafters that have it.
        what: simlab lacks, in words.
        marks: what stands in its class, or how its projector, or a field that it alone has, begins, in small letters.
        beside: whether the drafter below it is plain DFlash, so that its marginals are what they are without it.
    """

    name: str
    what: str
    marks: tuple[str, ...]
    beside: bool = False


HEADS_OF_OTHERS = (
    ForeignHead("UBTree", "bigram selector", ("ling3ubtree", "ubtree", "candidate_topk"), beside=True),
    ForeignHead("MFD", "learned modes, each of which drafts a future of its own", ("multifuture", "num_modes")),
    ForeignHead("DSpine", "injection between layers", ("dspine",)),
    ForeignHead("Domino", "recurrent head, by which a token depends on all before it", ("domino", "gru_")),
    ForeignHead("xPress", "mix over earlier slots, by which a token depends on all before it", ("xpress",)),
    ForeignHead("Laguna", "fused projections and gated attention", ("dflashlaguna",)),
)


def refuse_heads(fields: Mapping[str, object], reads: Callable[[Mapping[str, object]], object]) -> None:
    """Refuse a drafter that is DFlash with something more, by the name of what it has more.

    Args:
        fields: of its ``config.json``.
        reads: the configuration without it; raises `ModelError` where that is no plain DFlash either.
    """
    inner = inner_of(fields)
    projector = said_once("projector_type", inner, fields)
    for head in HEADS_OF_OTHERS:
        classes = [name for name in classes_of(fields) if any(mark in name.lower() for mark in head.marks)]
        keys = ["projector_type"] if isinstance(projector, str) and _has_mark(projector, head) else []
        keys += sorted({name for part in (fields, inner) for name in part if _has_mark(name, head)})
        asked = [name for name in keys if fields.get(name) or inner.get(name)]
        if classes or asked:
            seen = ", ".join([*classes, *map(_name, asked[:2])])
            known_by = f"this is a drafter of {head.name} ({seen}), and simlab lacks its {head.what}"
            raise ModelError(known_by + (_marginals(fields, keys, reads) if head.beside else ""))


def _has_mark(name: str, head: ForeignHead) -> bool:
    return name.lower().startswith(head.marks)


def _marginals(fields: Mapping[str, object], keys: Collection[str], reads: Callable[..., object]) -> str:
    """What can be recorded of a drafter below a head, in words; empty where that is no plain DFlash."""
    try:
        reads(plain_fields(fields, keys))
    except ModelError:
        return ""
    more = f" and {len(keys) - 2} more of its fields" if len(keys) > 2 else ""
    what = f"without {', '.join(map(_name, [*keys][:2]))}{more}, " if keys else ""
    return (
        f"; below it is plain DFlash, whose marginals alone can be recorded: from a copy {what}with architectures "
        f'["{DFLASH_CLASS}"] in config.json, and without its own tensors'
    )


KINDS_OF_OTHERS = {
    "eagle3": "this layout of EAGLE-3, but reads that of its authors and of SpecForge",
    "peagle": "P-EAGLE layers",
    "mtp": "multi-token prediction layers",
    "xpress": "the mix over earlier slots of xPress",
}
"""By the model type that speculators names."""

_PARTS_OF_OTHERS = {
    "qkv_proj": "fused projections of queries, keys and values (Laguna)",
    "g_proj": "gated attention (Laguna)",
    "aux_hidden_norms": "a norm for each tapped layer",
    "candidate_selector": "the candidate selector of DFlash2",
    "attention_conv": "the convolutions of DFlash2",
    "mlp_conv": "the convolutions of DFlash2",
    "markov_head": "the Markov head of DSpark",
    "confidence_head": "a confidence head",
    "prefix_gru": "the recurrent head of Domino",
    "midlayer": "the layer of EAGLE-3",
    "weight_scale": "quantised weights",
    "weight_packed": "quantised weights",
    "qweight": "quantised weights",
}
"""By the names of tensors."""

# One rule for every layout: a field of config.json is read, or changes nothing that a pass computes, or is refused.

WITHOUT_EFFECT = (
    *("architectures", "auto_map", "model_type", "name_or_path", "_name_or_path", "tokenizer_class", "dtype"),
    *("torch_dtype", "transformers_version", "target_model_type", "target_model_name_or_path", "initializer_range"),
    *("attention_dropout", "hidden_dropout", "pretraining_tp", "use_cache", "attn_implementation", "is_decoder"),
    *("_attn_implementation", "bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id", "return_dict"),
    *("output_attentions", "output_hidden_states", "max_position_embeddings", "tie_word_embeddings"),
)
"""Fields of training, of texts and of files, and those that other rules look at."""


def classes_of(fields: Mapping[str, object]) -> list[str]:
    """The classes that a ``config.json`` names in ``architectures``."""
    named = fields.get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def check_classes(fields: Mapping[str, object], known: Iterable[str], what: str) -> None:
    """Refuse a checkpoint of a class that simlab does not know.

    Args:
        fields: of its ``config.json``.
        known: the classes that its reader knows.
        what: they are, in words.
    """
    expected = tuple(known)
    for name in classes_of(fields):
        if name not in expected:
            raise ModelError(
                f"config.json says that this is of the class {_name(name)}, which simlab does not know; it runs "
                f"{what} ({', '.join(expected)})"
            )


ASKS_NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})
"""Values of a field of no drafter's own that ask for nothing: transformers writes many such fields."""


def check_keys(
    fields: Mapping[str, object], known: Iterable[str], where: str, nothing: Collection[object] = ASKS_NOTHING
) -> None:
    """Refuse a field that asks for something and is not known: it may change what is computed.

    Args:
        fields: an object of a ``config.json``.
        known: the fields that its reader looks at; those of `WITHOUT_EFFECT` are known everywhere.
        where: the object stands, for the message.
        nothing: values that ask for nothing.
    """
    understood = {*known, *WITHOUT_EFFECT}
    for name, value in fields.items():
        if name not in understood and value not in nothing:
            raise ModelError(
                f"{where} holds {_name(name)}={shown(value)}, which simlab does not know and which may change what is "
                "computed; choose another release, or take it out of a copy if its publisher says that it changes "
                "nothing"
            )


def _name(name: str) -> str:
    return name if name.isidentifier() else shown(name)


def inner_of(fields: Mapping[str, object]) -> Mapping[str, object]:
    """What stands in ``dflash_config``; empty where that is no object."""
    inner = fields.get("dflash_config")
    return inner if isinstance(inner, Mapping) else {}


def plain_fields(fields: Mapping[str, object], own: Collection[str]) -> dict[str, object]:
    """The fields of the plain DFlash drafter below a network whose own fields these are."""
    rest = {name: value for name, value in fields.items() if name not in own} | {"architectures": [DFLASH_CLASS]}
    if inner := inner_of(fields):
        rest["dflash_config"] = {name: value for name, value in inner.items() if name not in own}
    return rest


def said_once(name: str, *objects: Mapping[str, object]) -> object:
    """The value of a field that may stand in several objects of a ``config.json``; None where it stands in none."""
    values = [value for fields in objects if (value := fields.get(name)) is not None]
    for value in values[1:]:
        if value != values[0]:
            raise ModelError(
                f"the drafter's config.json says {name}={shown(values[0])} and {name}={shown(value)}; its publisher "
                "must say which holds"
            )
    return values[0] if values else None


def check_tied(fields: Mapping[str, object], names: Collection[str]) -> None:
    """Refuse an embedding of a drafter's own with a tied head that its checkpoint does not hold.

    Args:
        fields: of its ``config.json``.
        names: of its tensors.
    """
    if fields.get("tie_word_embeddings") is True and EMBEDDING in names and HEAD not in names:
        raise ModelError(
            f"this drafter has an embedding of its own, no {HEAD}, and tie_word_embeddings true: whether its head is "
            "this embedding or the target's head is not said; ask its publisher, and write the head into the checkpoint"
        )


def check_names(config: DFlashConfig, names: Iterable[str], location: object) -> None:
    """Refuse tensors that a drafter of this configuration does not consist of.

    Args:
        config: of the checkpoint.
        names: of its tensors.
        location: where it lies, for the message.
    """
    present, expected = set(names), {name for name, _ in config.shapes()}
    missing, foreign = sorted(expected - present), sorted(present - expected - {*BESIDE_THE_LAYERS, *IGNORED})
    named = {
        what: name for name in reversed(foreign) for part, what in _PARTS_OF_OTHERS.items() if f".{part}" in f".{name}"
    }
    if named:
        parts = ", ".join(f"{what}: {name}" for what, name in sorted(named.items())[:3])
        raise ModelError(f"the drafter in {location} has parts that simlab does not run ({parts})")
    if missing or foreign:
        listed = ", ".join(map(str, (missing or foreign)[:3]))
        more = "" if len(missing or foreign) <= 3 else f" and {len(missing or foreign) - 3} more"
        what = "lacks" if missing else "holds tensors that simlab does not know beside those of DFlash:"
        raise ModelError(f"the drafter in {location} {what} {listed}{more}; simlab runs DFlash checkpoints only")
    if config.draft_vocab_size is None:
        return
    if HEAD not in present:
        raise ModelError(
            f"the drafter in {location} has {config.draft_vocab_size} tokens of its own and no lm_head for them"
        )
    if not present & {OFFSETS, MASK}:
        raise ModelError(f"the drafter in {location} has a vocabulary of its own and no d2t or t2d that says which")


Value = TypeVar("Value")

_LARGEST, _HIGHEST = 1 << 31, 1e30
_MOST_LAYERS = 1024


def integer(value: object) -> int:
    """A value of ``config.json`` as the whole number that it must be."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST < value < _LARGEST:
        raise ModelError(f"the drafter's config.json holds {shown(value)} where a whole number belongs")
    return value


_MARKOV_GATED = {"vanilla": False, "gated": True}


def markov_of(rank: object, kind: object) -> Markov:
    """The Markov head that a ``config.json`` names, in whichever layout.

    Args:
        rank: of its tables, as it was read.
        kind: its type.
    """
    name = str(kind).lower()
    if name == "rnn":
        raise ModelError(
            "this is a drafter of DSpark whose Markov head is of the type rnn, and simlab lacks its state, which goes "
            "from slot to slot, so that a token depends on all before it; types vanilla and gated are run"
        )
    if name not in _MARKOV_GATED:
        raise ModelError(
            f"this drafter of DSpark has markov_head_type={shown(kind)}; simlab runs {' and '.join(_MARKOV_GATED)}"
        )
    return Markov(integer(rank), _MARKOV_GATED[name])


def layer_count(value: object) -> int:
    """How many layers a drafter has; what follows makes a list of so many."""
    if integer(value) > _MOST_LAYERS:
        raise ModelError(f"a drafter's num_hidden_layers must be at most {_MOST_LAYERS:,}; got {value}")
    return integer(value)


def number(value: object) -> float:
    """A value of ``config.json`` as the number that it must be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_HIGHEST < value < _HIGHEST:
        raise ModelError(f"the drafter's config.json holds {shown(value)} where a number belongs")
    return float(value)


def typed(value: object, kind: type[Value], where: str, what: str) -> Value:
    """A value of ``config.json`` of the type that it must be.

    Args:
        value: as it was read.
        kind: its type.
        where: it stands, such as "the drafter's config.json holds causal".
        what: belongs there, in words.
    """
    if not isinstance(value, kind):
        raise ModelError(f"{where}={shown(value)} where {what} belongs")
    return value


def flag(value: object, name: str) -> bool:
    """A value of ``config.json`` as the truth value that it must be."""
    return typed(value, bool, f"the drafter's config.json holds {name}", "true or false")


def flag_of(fields: Mapping[str, object], name: str) -> bool:
    """A field that is true or false; false where it is null or left out."""
    value = fields.get(name)
    return value is not None and flag(value, name)


def layer_numbers(value: object) -> tuple[int, ...]:
    """The target's layers that are tapped."""
    if not isinstance(value, list | tuple):
        raise ModelError(f"the drafter's target_layer_ids must be a list of layer numbers; got {shown(value)}")
    return tuple(integer(tap) for tap in value)


def rotary_base(fields: Mapping[str, object]) -> float:
    """The base of the rotary positions, from either place."""
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.get(name)
        if not isinstance(rope, Mapping):
            continue
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ModelError(
                f"this drafter needs scaled rotary positions ({name} {shown(kind)}), which simlab does not run"
            )
        if rope.get("partial_rotary_factor", 1) != 1 or any(isinstance(value, Mapping) for value in rope.values()):
            raise ModelError(
                f"this drafter needs rotary positions that {name} {shown(dict(rope))} describes, "
                "which simlab does not run"
            )
    ropes = [rope for name in ("rope_scaling", "rope_parameters") if isinstance(rope := fields.get(name), Mapping)]
    theta = said_once("rope_theta", *ropes, fields)
    # The default of transformers, for every model type that is read here.
    return number(10000.0 if theta is None else theta)


def layer_types(fields: Mapping[str, object], num_layers: int) -> list[str]:
    """The kind of each layer, as transformers' Qwen3 configuration works it out."""
    given = fields.get("layer_types")
    if given is None:
        first = integer(fields.get("max_window_layers", 28))
        slides = flag_of(fields, "use_sliding_window") and fields.get("sliding_window") is not None
        return ["sliding_attention" if slides and i >= first else "full_attention" for i in range(num_layers)]
    if not isinstance(given, list | tuple) or (num_layers > 0 and len(given) != num_layers):
        raise ModelError(
            f"the drafter's layer_types must name the kind of each of {num_layers} layers; got {shown(given)}"
        )
    if others := [kind for kind in given if kind not in ("full_attention", "sliding_attention")]:
        raise ModelError(f"this drafter has layers of {shown(others[0])}, which simlab does not run")
    return [str(kind) for kind in given]


def sliding_window(fields: Mapping[str, object]) -> int | None:
    """The window of sliding layers, where it is in use."""
    window = fields.get("sliding_window", 4096)
    return integer(window) if flag_of(fields, "use_sliding_window") and window is not None else None
