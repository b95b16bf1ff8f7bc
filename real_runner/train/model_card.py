"""The model card of a trained drafter: facts in, Markdown out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.train.trainer import CurvePoint

ROWS_OF_CURVE = 24
_STARTS = {"target": "the target's last layers", "random": "random weights"}


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What was learnt from. ``num_tokens`` counts the texts, not their prompts."""

    name: str
    num_texts: int
    num_tokens: int
    own_answers: bool


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Everything that the card says.

    Attributes:
        init: ``target``, ``random``, or the drafter that training went on from.
        plan: settings of the run by name; may be nested once.
    """

    name: str
    target: str
    init: str
    config: DFlashConfig
    num_parameters: int
    data: TrainingData
    plan: Mapping[str, object]
    curve: tuple[CurvePoint, ...]


def model_card(facts: CardFacts) -> str:
    """The card, a function of the facts alone."""
    parts = [
        f"# {facts.name}",
        _summary(facts),
        _architecture(facts),
        data_section(facts.data, facts.plan, facts.curve, facts.config.depth),
        plan_section(_STARTS.get(facts.init, f"`{facts.init}`"), facts.plan),
        _curve(facts),
        _depths(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(facts: CardFacts) -> str:
    what = "A DFlash block-diffusion drafter"
    if facts.config.is_causal_head:
        what = "A causal draft head (DFlash whose blocks are causal inside, after JetSpec, arXiv 2606.18394)"
    return (
        f"{what} for `{facts.target}`, trained with `simlab train dflash`. In one pass it proposes the next "
        f"{facts.config.depth} tokens, each independently of the others; the target verifies them.{_redrafts(facts)}"
    )


def _redrafts(facts: CardFacts) -> str:
    """What a drafter that learnt behind filled slots is for."""
    if "variable_prefix" not in facts.plan:
        return ""
    return (
        " Its first slots may be filled with tokens: it then drafts behind these, as D2SD's second drafter does "
        "(arXiv 2606.04446)."
    )


def _architecture(facts: CardFacts) -> str:
    config = facts.config
    rows = [
        ("draft layers", config.num_hidden_layers),
        ("block size, root included", config.block_size),
        ("target layers read", ", ".join(map(str, config.target_layer_ids))),
        ("mask token id", config.mask_token_id),
        ("hidden size", config.hidden_size),
        ("own parameters", f"{facts.num_parameters:,}"),
    ]
    return f"## Drafter\n\n{table(('', ''), rows)}\n\nEmbedding and output head are the target's."


def data_section(
    data: TrainingData, plan: Mapping[str, object], curve: Sequence[CurvePoint], num_predicted: int
) -> str:
    """The text, and how much of it was seen; each block predicts so many tokens."""
    by_target = ", the target's own answers to these prompts" if data.own_answers else ""
    lines = [
        f"{data.num_texts:,} texts of {data.num_tokens:,} tokens (prompts not counted) from `{data.name}`{by_target}."
    ]
    counts = [plan.get(name) for name in ("num_sequences", "num_roots")]
    if curve and all(isinstance(count, int) for count in counts):
        sequences, roots = (count for count in counts if isinstance(count, int))
        drawn = curve[-1].step * sequences
        lines.append(
            f"Seen in training: {drawn:,} texts with {roots} random roots each, "
            f"{drawn / max(data.num_texts, 1):.2f} passes over the text, {drawn * roots:,} blocks, "
            f"{drawn * roots * num_predicted:,} predicted tokens."
        )
    return "## Data\n\n" + "\n".join(lines)


def plan_section(start: str, plan: Mapping[str, object]) -> str:
    """The settings of a run, after what it started from."""
    return f"## Plan\n\n{table(('setting', 'value'), [('start', start), *_flat(plan)])}"


def _flat(plan: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in plan.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        else:
            yield before + name.replace("_", " "), value


def _curve(facts: CardFacts) -> str:
    if not facts.curve:
        return ""
    names = list(facts.curve[-1].dev)
    head = ("step", "loss", *(f"{name}: chain" for name in names), *(f"{name}: first right" for name in names))
    rows = [
        (
            point.step,
            "" if point.loss is None else f"{point.loss:.3f}",
            *(f"{point.dev[name].acceptance_length:.3f}" if name in point.dev else "" for name in names),
            *(percent(point.dev[name].agreement[0]) if name in point.dev else "" for name in names),
        )
        for point in thinned(facts.curve, ROWS_OF_CURVE)
    ]
    said = "\n\nchain: acceptance length of the most probable chain, bonus token counted." if names else ""
    return f"## Curve\n\n{table(head, rows)}{said}"


def thinned(curve: Sequence[CurvePoint], count: int) -> list[CurvePoint]:
    """At most ``count`` points, evenly spread, the first and the last among them."""
    if len(curve) <= count:
        return list(curve)
    return [curve[round(i * (len(curve) - 1) / (count - 1))] for i in range(count)]


def _depths(facts: CardFacts) -> str:
    """The table of depths, of the last point of the curve."""
    if not facts.curve or not facts.curve[-1].dev:
        return ""
    head = ("set", *range(1, facts.config.depth + 1))
    rows = [(name, *map(percent, score.agreement)) for name, score in facts.curve[-1].dev.items()]
    return (
        "## Agreement per depth\n\nShare of positions where the most probable token of a depth is the target's, "
        f"whatever comes before it.\n\n{table(head, rows)}"
    )


def percent(share: float) -> str:
    """A share of one, for people."""
    return f"{100 * share:.1f} %"


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
