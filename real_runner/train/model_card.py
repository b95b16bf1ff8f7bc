"""The model card of a trained drafter, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.train.options import TrainOptions
from simlab.real_runner.train.plan import TextOptions
from simlab.real_runner.train.trainer import CurvePoint

ROWS_OF_CURVE = 24
_STARTS = {"target": "the target's last layers", "random": "random weights"}


def model_card(
    options: TrainOptions, drafter: DFlashDrafter, num_texts: int, num_tokens: int, curve: Sequence[CurvePoint]
) -> str:
    """The card of a drafter: what it was trained from, how, and how well it does.

    Args:
        options: of the run.
        drafter: as it is at its end.
        num_texts: that were learnt from.
        num_tokens: of these texts, their prompts not counted.
        curve: of the run.
    """
    config, plan = drafter.config, asdict(options.plan) | options.filled
    parts = [
        f"# {options.out.resolve().name}",
        _summary(options, config),
        _architecture(drafter),
        data_section(options.texts, num_texts, num_tokens, plan, curve, config.depth),
        plan_section(_STARTS.get(options.init, f"`{options.init}`"), plan),
        _curve(curve),
        _depths(curve, config.depth),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(options: TrainOptions, config: DFlashConfig) -> str:
    what, redrafts = "A DFlash block-diffusion drafter", ""
    if config.is_causal_head:
        what = "A causal draft head (DFlash whose blocks are causal inside, after JetSpec, arXiv 2606.18394)"
    if options.filled:
        redrafts = (
            " Its first slots may be filled with tokens: it then drafts behind these, as D2SD's second drafter does "
            "(arXiv 2606.04446)."
        )
    return (
        f"{what} for `{options.target}`, trained with `simlab train dflash`. In one pass it proposes the next "
        f"{config.depth} tokens, each independently of the others; the target verifies them.{redrafts}"
    )


def _architecture(drafter: DFlashDrafter) -> str:
    config = drafter.config
    rows = [
        ("draft layers", config.num_hidden_layers),
        ("block size, root included", config.block_size),
        ("target layers read", ", ".join(map(str, config.target_layer_ids))),
        ("mask token id", config.mask_token_id),
        ("hidden size", config.hidden_size),
        ("own parameters", f"{sum(parameter.numel() for parameter in drafter.parameters()):,}"),
    ]
    return f"## Drafter\n\n{table(('', ''), rows)}\n\nEmbedding and output head are the target's."


def data_section(
    options: TextOptions,
    num_texts: int,
    num_tokens: int,
    plan: Mapping[str, object],
    curve: Sequence[CurvePoint],
    num_predicted: int,
) -> str:
    """The text, and how much of it was seen; each block predicts so many tokens."""
    (source,) = options.files
    by_target = ", the target's own answers to these prompts" if options.text is None else ""
    lines = [f"{num_texts:,} texts of {num_tokens:,} tokens (prompts not counted) from `{source.name}`{by_target}."]
    counts = [plan.get(name) for name in ("num_sequences", "num_roots")]
    if curve and all(isinstance(count, int) for count in counts):
        sequences, roots = (count for count in counts if isinstance(count, int))
        drawn = curve[-1].step * sequences
        lines.append(
            f"Seen in training: {drawn:,} texts with {roots} random roots each, "
            f"{drawn / max(num_texts, 1):.2f} passes over the text, {drawn * roots:,} blocks, "
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


def _curve(curve: Sequence[CurvePoint]) -> str:
    if not curve:
        return ""
    names = list(curve[-1].dev)
    head = ("step", "loss", *(f"{name}: chain" for name in names), *(f"{name}: first right" for name in names))
    rows = [
        (
            point.step,
            "" if point.loss is None else f"{point.loss:.3f}",
            *(f"{point.dev[name].acceptance_length:.3f}" if name in point.dev else "" for name in names),
            *(percent(point.dev[name].agreement[0]) if name in point.dev else "" for name in names),
        )
        for point in thinned(curve, ROWS_OF_CURVE)
    ]
    note = "\n\nchain: acceptance length of the most probable chain, bonus token counted." if names else ""
    return f"## Curve\n\n{table(head, rows)}{note}"


def thinned(curve: Sequence[CurvePoint], count: int) -> list[CurvePoint]:
    """At most ``count`` points, evenly spread, the first and the last among them."""
    if len(curve) <= count:
        return list(curve)
    return [curve[round(i * (len(curve) - 1) / (count - 1))] for i in range(count)]


def _depths(curve: Sequence[CurvePoint], depth: int) -> str:
    """The table of depths, of the last point of the curve."""
    if not curve or not curve[-1].dev:
        return ""
    head = ("set", *range(1, depth + 1))
    rows = [(name, *map(percent, score.agreement)) for name, score in curve[-1].dev.items()]
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
