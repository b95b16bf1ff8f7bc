"""The sizes of a dense transformer's layers, and what one pass of it computes and moves.

The counts are those of BASTION (2026, arXiv 2605.29727), as its release has them: every multiplication and addition of
the matrix products, and every weight, cached row and activation once, attention scores twice.
"""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass

from simlab.arrays import Doubles
from simlab.errors import PolicyError
from simlab.ids import content_id

ELEMENT_BYTES = 2
"""As published; a wider type moves as many times more in every term, which a fit to measured seconds takes up."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """The sizes of a target's layers, with grouped queries and a gated feed-forward network.

    Attributes:
        num_layers: of the target.
        hidden: width of a token's state.
        query: width of all queries of a token.
        key_value: width of all keys of a token, and of all its values.
        num_heads: of queries.
        feed_forward: inner width of the feed-forward network.
        vocab: tokens that the head scores.
    """

    num_layers: int
    hidden: int
    query: int
    key_value: int
    num_heads: int
    feed_forward: int
    vocab: int

    def __post_init__(self) -> None:
        if min(astuple(self)) < 1:
            raise ValueError(f"sizes of layers must be at least 1; got {self!r}")

    @property
    def sizes_id(self) -> str:
        """The content id of these sizes."""
        return content_id(asdict(self))

    def flops(self, contexts: Doubles, tokens: Doubles) -> Doubles:
        """Floating-point operations of a pass.

        Args:
            contexts: float64, tokens before the root.
            tokens: float64, tokens of the pass, the root among them; of a shape that goes with ``contexts``.
        """
        projections = 4 * self.hidden * (self.query + self.key_value) + 6 * self.hidden * self.feed_forward
        attention = 4 * self.query * tokens * (contexts + tokens)
        return self.num_layers * (projections * tokens + attention) + 2 * self.hidden * self.vocab * tokens

    def moved_bytes(self, contexts: Doubles, tokens: Doubles) -> Doubles:
        """Bytes that a pass reads and writes; arguments as of `flops`."""
        layer = 2 * self.hidden * (self.query + self.key_value) + 3 * self.hidden * self.feed_forward
        weights = 2 * self.vocab * self.hidden + self.num_layers * layer
        cached = 2 * self.key_value * (contexts + tokens)
        states = 4 * self.hidden + 4 * self.query + 2 * self.key_value + 4 * self.feed_forward
        scores = 2 * self.num_heads * tokens * (contexts + tokens)
        head = (self.hidden + self.vocab) * tokens
        return ELEMENT_BYTES * (weights + self.num_layers * (cached + states * tokens + scores) + head)


def layer_sizes(config: Mapping[str, object], where: str) -> LayerSizes:
    """The sizes in a model's ``config.json``, by the names of Llama and Qwen.

    Args:
        config: without ``num_key_value_heads`` there are as many as of queries, without ``head_dim`` the hidden state
            is shared among them.
        where: it comes from, for messages.
    """
    if any(_is_many(config.get(name)) for name in _EXPERTS):
        raise PolicyError(
            f"{where} is of a mixture of experts, and the roofline is that of a dense transformer; use the measured "
            "latencies: cost_model=measured"
        )
    hidden, num_heads = _size(config, "hidden_size", where), _size(config, "num_attention_heads", where)
    num_shared = num_heads if config.get("num_key_value_heads") is None else _size(config, "num_key_value_heads", where)
    head = max(1, hidden // num_heads) if config.get("head_dim") is None else _size(config, "head_dim", where)
    return LayerSizes(
        num_layers=_size(config, "num_hidden_layers", where),
        hidden=hidden,
        query=num_heads * head,
        key_value=num_shared * head,
        num_heads=num_heads,
        feed_forward=_size(config, "intermediate_size", where),
        vocab=_size(config, "vocab_size", where),
    )


def _is_many(value: object) -> bool:
    return isinstance(value, int) and value > 1


def _size(config: Mapping[str, object], name: str, where: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"{where} must give {name} as a whole number above 0; got {value!r}")
    return value
