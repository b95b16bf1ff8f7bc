"""The model card of a trained head: facts in, Markdown out."""

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
class HeadFacts:
    """Everything that the card says.

    Attributes:
        draft: the drafter that the head belongs to, as it was named.
        digest: of that drafter's checkpoint.
        depth: D, of the drafter.
        data: without the texts that were held out.
        plan: settings of the run by name; may be nested once.
        curve: with held-out scores.
        best_step: whose weights the checkpoint has.
    """

    name: str
    target: str
    draft: str
    digest: str
    depth: int
    inner_size: int
    num_parameters: int
    data: TrainingData
    num_held_out: int
    plan: Mapping[str, object]
    curve: tuple[CurvePoint, ...]
    best_step: int


def head_card(facts: HeadFacts) -> str:
    """The card, a function of the facts alone."""
    parts = [
        f"# {facts.name}",
        _summary(facts),
        _head(facts),
        data_section(facts.data, facts.plan, facts.curve, facts.depth),
        f"{facts.num_held_out:,} further texts were held out.",
        plan_section("the drafter's own marginals: the head adds nothing", facts.plan),
        _curve(facts),
        _depths(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(facts: HeadFacts) -> str:
    return (
        f"A first-order head (TreeFlash, arXiv 2606.03819) for the drafter `{facts.draft}` of `{facts.target}`, "
        "trained with `simlab train treeflash`. It corrects what the drafter says of a depth for the token at the "
        "depth above; the drafter itself was not changed."
    )


def _head(facts: HeadFacts) -> str:
    rows = [
        ("drafter, sha256 of its files", facts.digest),
        ("depths", facts.depth),
        ("inner size", facts.inner_size),
        ("own parameters", f"{facts.num_parameters:,}"),
    ]
    return f"## Head\n\n{table(('', ''), rows)}\n\nEmbedding, last norm and output head are those of the drafter."


def _held(facts: HeadFacts) -> list[tuple[CurvePoint, HeldOut]]:
    return [(point, point.held_out) for point in facts.curve if point.held_out is not None]


def _curve(facts: HeadFacts) -> str:
    losses = {point.step: held.loss for point, held in _held(facts)}
    rows = [
        (point.step, "" if point.loss is None else f"{point.loss:.3f}", f"{losses[point.step]:.3f}")
        for point in thinned(facts.curve, ROWS_OF_CURVE)
    ]
    return (
        f"## Curve\n\n{table(('step', 'loss', 'held-out loss'), rows)}\n\nThe checkpoint has the weights of step "
        f"{facts.best_step}, where the held-out loss was lowest."
    )


def _depths(facts: HeadFacts) -> str:
    scores = {point.step: held for point, held in _held(facts)}
    named = {"drafter alone": scores[0], "with the head": scores[facts.best_step]}
    head = ("held-out texts", *range(1, facts.depth + 1))
    entropies = [(name, *(f"{value:.3f}" for value in one.cross_entropy)) for name, one in named.items()]
    agreement = [(name, *map(percent, one.agreement)) for name, one in named.items()]
    return (
        "## By depth\n\nCross-entropy of the true token, the true token above it known; nats, over the tokens that the "
        f"loss is taken over.\n\n{table(head, entropies)}\n\nShare of these where the most probable token is the true "
        f"one.\n\n{table(head, agreement)}"
    )
