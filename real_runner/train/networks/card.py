"""The model card of a network that is no drafter: facts in, Markdown out."""

from collections.abc import Mapping
from dataclasses import dataclass

from simlab.real_runner.train.curve import CurvePoint, HeldOut
from simlab.real_runner.train.model_card import (
    ROWS_OF_CURVE,
    TrainingData,
    data_section,
    percent,
    plan_section,
    table,
    thinned,
)


@dataclass(frozen=True, slots=True)
class NetworkWords:
    """What the card of one kind of network says.

    Attributes:
        kind: such as ``head``.
        what: it is, with its source, in words that follow an article.
        command: that trains it.
        does: a sentence.
        sizes: by name.
        borrowed: a sentence on what is the drafter's or the target's.
        before: what its first figures are called.
        start: what it says before the first step.
        asked: what its cross-entropies are of.
    """

    kind: str
    what: str
    command: str
    does: str
    sizes: Mapping[str, int]
    borrowed: str
    before: str
    start: str
    asked: str


@dataclass(frozen=True, slots=True)
class NamedDrafter:
    """The drafter that a network belongs to.

    Attributes:
        name: or folder, as a person gave it.
        digest: of its checkpoint.
    """

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """Everything that the card says.

    Attributes:
        drafter: None: it works without one.
        data: without the texts that were held out.
        plan: settings of the run by name; may be nested once.
        curve: with held-out scores.
        best_step: whose weights the checkpoint has.
        words: on networks of its kind.
    """

    name: str
    target: str
    drafter: NamedDrafter | None
    num_parameters: int
    data: TrainingData
    num_held_out: int
    plan: Mapping[str, object]
    curve: tuple[CurvePoint, ...]
    best_step: int
    words: NetworkWords


def network_card(facts: NetworkFacts) -> str:
    """The card, a function of the facts alone."""
    parts = [
        f"# {facts.name}",
        _summary(facts),
        _network(facts),
        data_section(facts.data, facts.plan, facts.curve, _depth(facts)),
        f"{facts.num_held_out:,} further texts were held out.",
        plan_section(facts.words.start, facts.plan),
        _curve(facts),
        _depths(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(facts: NetworkFacts) -> str:
    words, drafter = facts.words, facts.drafter
    whose, kept = f"`{facts.target}`", "target"
    if drafter is not None:
        whose, kept = f"the drafter `{drafter.name}` of {whose}", "drafter"
    return f"{words.what} for {whose}, trained with `{words.command}`. {words.does} The {kept} itself was not changed."


def _network(facts: NetworkFacts) -> str:
    rows: list[tuple[object, object]] = [
        *([] if facts.drafter is None else [("drafter, sha256 of its files", facts.drafter.digest)]),
        ("depths", _depth(facts)),
        *facts.words.sizes.items(),
        ("own parameters", f"{facts.num_parameters:,}"),
    ]
    return f"## {facts.words.kind.capitalize()}\n\n{table(('', ''), rows)}\n\n{facts.words.borrowed}"


def _depth(facts: NetworkFacts) -> int:
    return len(_held(facts)[0][1].agreement)


def _held(facts: NetworkFacts) -> list[tuple[CurvePoint, HeldOut]]:
    return [(point, point.held_out) for point in facts.curve if point.held_out is not None]


def _curve(facts: NetworkFacts) -> str:
    losses = {point.step: held.loss for point, held in _held(facts)}
    rows = [
        (point.step, "" if point.loss is None else f"{point.loss:.3f}", f"{losses[point.step]:.3f}")
        for point in thinned(facts.curve, ROWS_OF_CURVE)
    ]
    return (
        f"## Curve\n\n{table(('step', 'loss', 'held-out loss'), rows)}\n\nThe checkpoint has the weights of step "
        f"{facts.best_step}, where the held-out loss was lowest."
    )


def _depths(facts: NetworkFacts) -> str:
    scores = {point.step: held for point, held in _held(facts)}
    named = {facts.words.before: scores[0], f"with the {facts.words.kind}": scores[facts.best_step]}
    head = ("held-out texts", *range(1, _depth(facts) + 1))
    entropies = [(name, *(f"{value:.3f}" for value in one.cross_entropy)) for name, one in named.items()]
    agreement = [(name, *map(percent, one.agreement)) for name, one in named.items()]
    return (
        f"## By depth\n\nCross-entropy of {facts.words.asked}; nats.\n\n{table(head, entropies)}\n\nShare of these "
        f"where the most probable one is the true one.\n\n{table(head, agreement)}"
    )
