"""The page of a report: its sections, each from what is at hand."""

from collections import Counter
from collections.abc import Callable, Sequence

from simlab.analysis.curves.rows import curve_rows, roots_read_here
from simlab.analysis.curves.summaries import curve_summaries
from simlab.analysis.curves.tallies import curve_machine
from simlab.analysis.curves.text import worst_example
from simlab.analysis.report.costs import budget_chart, cost_chart, example_chart, maxima_chart, regret_chart
from simlab.analysis.report.page import Chart, Part, Section, TrustLabel, report_page
from simlab.analysis.report.results import crosscheck_grid, scoring_parts
from simlab.analysis.report.rounds import RoundCounts, depth_chart, ends_chart
from simlab.analysis.report.speed import policy_table, slice_chart, speed_chart, stage_chart, stage_table
from simlab.analysis.report.trees import explorer_trees
from simlab.analysis.report.verdict import VerdictChoice, verdict_of
from simlab.analysis.scoring.score import Scoring, ScoringLimits, by_prompts, score_trace
from simlab.analysis.table.summaries import Summary
from simlab.analysis.table.text import SPEEDUP
from simlab.channels.needs import channels_read
from simlab.errors import UsageError
from simlab.ids import VERSION
from simlab.options import SLICES
from simlab.policies.composition import order_of
from simlab.policies.costs.curves import convex_view
from simlab.policies.costs.what_if import WHAT_IF
from simlab.policies.engine.replay import Replay
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.parsing.parse import NamedPolicy
from simlab.studies.inputs.progress import step
from simlab.studies.inputs.trace import decoder_of
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.report.inputs import ReportInputs
from simlab.traces.artefacts.confirmation import Confirmation
from simlab.workers.threads import in_order, num_cores

# The trees of a report: which texts are shown, and their words.


def explorer(inputs: ReportInputs, named: Sequence[NamedPolicy], num_texts: int, missing: list[str]) -> Part:
    """The trees of some policies on some texts.

    Args:
        inputs: with a trace.
        named: the policies.
        num_texts: texts that are shown, taken from each dataset in turn.
        missing: gets a sentence where words cannot be shown.
    """
    assert inputs.trace is not None
    decode = decoder_of(inputs.trace)
    if decode is None:
        missing.append(
            "Trees show token ids, not words: the target's tokenizer is not here (pip install 'simlab[models]', and "
            "fetch the target once)."
        )
    channels = channels_read(policy.policy for policy in named)
    return explorer_trees(named, decode, inputs.trace.recorded(inputs.draft, _spread(inputs, num_texts), channels))


def _spread(inputs: ReportInputs, number: int) -> list[int]:
    """Texts with rounds, taken from each dataset in turn."""
    assert inputs.trace is not None
    wanted = set(inputs.wanted)
    sets: dict[str, list[int]] = {}
    for sequence in inputs.trace.sequences():
        if sequence.index in wanted and len(sequence.text) > 1:
            sets.setdefault(sequence.prompt.dataset, []).append(sequence.index)
    longest = max(map(len, sets.values()), default=0)
    in_turn = [own[index] for index in range(longest) for own in sets.values() if index < len(own)]
    return sorted(in_turn[:number])


# How far the numbers of a report can be trusted, in four labels; and where they come from.


def trust_labels(inputs: ReportInputs, choice: VerdictChoice) -> dict[str, TrustLabel]:
    """Text, rows, prices, and prompts."""
    return {
        "The text": _text_label(inputs),
        "The trace": _rows_label(inputs),
        "Latency profile": _prices_label(inputs),
        "Chosen on / reported on": _choice_label(inputs, choice),
    }


def _text_label(inputs: ReportInputs) -> TrustLabel:
    if not inputs.judged:
        return TrustLabel("not run here", "Replayed only. `simlab confirm` runs the policies and audits every text.")
    failed = [label for label, verdict in inputs.judged if verdict.startswith("FAILED")]
    if failed:
        return TrustLabel("FAILED", f"The text of {', '.join(failed)} is not the target's.", "caution")
    if {verdict for _, verdict in inputs.judged} == {"exact"}:
        return TrustLabel(
            "lossless: exact",
            "Every text that ran equals that of autoregressive decoding, token for token.",
            "good",
        )
    ties = ", ".join(f"{label} {verdict}" for label, verdict in inputs.judged)
    detail = f"A float32 audit would choose otherwise at close calls only, all within its bound: {ties}."
    return TrustLabel("lossless up to ties", detail, "good")


def _rows_label(inputs: ReportInputs) -> TrustLabel:
    if inputs.trace is None:
        return TrustLabel(f"text {inputs.rows['text_id'][0]}", "The trace itself is not at hand.")
    manifest = inputs.trace.manifest
    rows = sum(max(len(text.text) - 1, 0) for text in inputs.texts())
    made = f"text {manifest.text_origin}"
    if manifest.hidden_states is not None:
        made = f"text and hidden states of the target from a serving engine, in {manifest.hidden_states.dtype}"
    detail = (
        f"{manifest.target.label}, {manifest.dtype}, temperature {manifest.sampling.temperature:g}; {made}. "
        "A row at every position, so every policy is replayed exactly."
    )
    return TrustLabel(f"{rows:,} rows, dense", detail, "good" if manifest.gt_mode == "generated" else "plain")


def _prices_label(inputs: ReportInputs) -> TrustLabel:
    if not inputs.results.has_seconds:
        why = inputs.prices.no_latency_reason if inputs.prices is not None else ""
        return TrustLabel("none", why or "The rows hold no seconds.", "caution")
    priced = set(inputs.results.predicted["cost_id"].drop_nulls())
    heading = f"Latency profile {', '.join(sorted(priced))}; its file is not at hand."
    if inputs.prices is not None:
        heading = inputs.prices.heading
    if priced and priced == {confirmation.cost_id for confirmation in inputs.confirmed}:
        detail = f"confirm ran on the machine, models and settings that the cost file names. {heading}"
        return TrustLabel("match the machine", detail, "good")
    if any(cost_id.startswith(WHAT_IF) for cost_id in priced):
        return TrustLabel("hypothetical, not measured", heading, "caution")
    if inputs.prices is None:
        return TrustLabel("not at hand", heading, "caution")
    file = inputs.prices.file
    if file is not None and file.is_of_others:
        label = "of other models" if file.models_are_stated else "models not stated"
        return TrustLabel(label, " ".join([f"{heading}.", *inputs.prices.caveats]), "caution")
    if file is not None and file.is_imported:
        return TrustLabel(
            "said to be of these models",
            " ".join([f"{heading}. Who imported the timings said so; nobody checked.", *inputs.prices.caveats]),
            "caution",
        )
    return TrustLabel("of these models", f"Measured on: {heading}. Another machine has other latencies.", "plain")


def _choice_label(inputs: ReportInputs, choice: VerdictChoice) -> TrustLabel:
    first = inputs.results.summaries[0]
    datasets = ", ".join(sorted(set(inputs.rows["dataset"])))
    here = f"{first.prompts} prompts of {datasets}"
    if choice.is_held_out:
        return TrustLabel("other prompts", f"Chosen {choice.origin}; reported on {here}.", "good")
    detail = f"The best of the table is picked {choice.origin}: {here}. It looks better than it will on others."
    return TrustLabel("the same prompts", detail, "caution")


def footer_text(inputs: ReportInputs) -> str:
    """Ids of everything that was read."""
    rows = inputs.rows
    parts = [f"simlab {VERSION}", f"text {rows['text_id'][0]}"]
    drafts = sorted(set(rows["draft_id"].drop_nulls()))
    costs = sorted(set(rows["cost_id"].drop_nulls()))
    parts += [f"draft set {', '.join(drafts)}"] if drafts else []
    parts += [f"latency profiles {', '.join(costs)}"] if costs else []
    if inputs.trace is not None:
        parts.append(f"trace: {inputs.trace.label}")
    ids = {finalist.policy: finalist.policy_id for finalist in inputs.results.finalists}
    parts.append("policies " + ", ".join(f"{label} ({policy_id})" for label, policy_id in ids.items()))
    return " · ".join(parts)


MOST_SHOWN = 5
"""As many policies are drawn in figures that show each of them."""

_EDGES = ("raw", "calibrated")

_SCORED = ("ddtree:budget=16", "calibrated:budget=16", "presto:budget=16,renormalised=true")
"""Policies whose probabilities are compared with the truth, as far as tables for the models are at hand."""


def built_page(inputs: ReportInputs, title: str, num_texts: int, command: str) -> tuple[str, str, tuple[str, ...]]:
    """The report of what was read.

    Args:
        inputs: everything.
        title: of the browser's tab.
        num_texts: texts whose trees are shown.
        command: what makes the report again, as it is typed.

    Returns:
        The file; its first sentence; what is not in it, and why, and what must be known of the rest, a sentence each.
    """
    missing = list(inputs.missing)
    caveats = () if inputs.prices is None else inputs.prices.caveats
    best, verdict, more = verdict_of(inputs.results, _choice(inputs), caveats)
    shown = _shown(inputs, best)
    sections = _sections(inputs, shown, num_texts, missing)
    measured = [
        f"Measured: {confirmation.verdict.splitlines()[0]}" for confirmation in inputs.confirmed if confirmation.verdict
    ]
    html = report_page(
        title,
        [verdict, *more, *measured, *missing],
        policy_table(inputs.results, best, SPEEDUP if inputs.prices is None else inputs.prices.speedup_note),
        speed_chart(inputs.results),
        trust_labels(inputs, _choice(inputs)),
        command,
        sections,
        footer_text(inputs),
    )
    return html, verdict, tuple(missing)


def _choice(inputs: ReportInputs) -> VerdictChoice:
    optimum = inputs.optimum
    if optimum is None:
        return VerdictChoice(None, "on these very prompts", False)
    own = set(inputs.rows.select("dataset", "prompt_id").iter_rows())
    on = f"on {optimum.chosen_on.prompts} prompts of {', '.join(optimum.chosen_on.datasets)}"
    is_held_out = optimum.chosen_on.names.isdisjoint(own)
    return VerdictChoice(optimum.best.policy, on, is_held_out)


CHARTS = (
    "speed",
    *(f"by-{name}" for name in SLICES),
    "stages",
    "depths",
    "ends",
    "reliability",
    "first-candidates",
    "gap",
    "waste",
    "maxima",
    "regret",
    "worst",
    "budgets",
    "costs",
)
"""The keys of all figures of a report, in its order."""


def chart_of(inputs: ReportInputs, key: str) -> Chart:
    """One figure of a report, drawn alone.

    Args:
        inputs: everything.
        key: one of `CHARTS`.

    Raises:
        UsageError: what it needs is not at hand, or the results are not of that kind.
    """
    if key == "speed":
        return speed_chart(inputs.results)
    best, _, _ = verdict_of(inputs.results, _choice(inputs))
    index, shown = CHARTS.index(key), _shown(inputs, best)
    if inputs.trace is None and index >= CHARTS.index("depths"):
        raise UsageError(f"the picture `{key}` needs the trace of the results; give it with --trace DIR")
    if inputs.cost is None and index >= CHARTS.index("maxima"):
        raise UsageError(f"the picture `{key}` needs the cost file of the results; give it with --cost FILE")
    parts: list[Part | None]
    if key.startswith("by-"):
        parts = [slice_chart(inputs.results, shown, key.removeprefix("by-"))]
    elif key == "stages":
        parts = [stage_chart(inputs.results, shown)]
    elif key in ("depths", "ends"):
        named = inputs.named([summary.policy for summary in shown])
        parts = [*(_rounds(inputs, named) if named else [])]
    elif key == "costs":
        parts = [*_costs(inputs)]
    else:
        parts = [*(_curves(inputs, []) if index >= CHARTS.index("maxima") else _scoring(inputs))]
    for part in parts:
        if isinstance(part, Chart) and part.key == key:
            return part
    raise UsageError(f"there is no picture `{key}` of these results: {_WHY_NONE.get(key, 'all are of one kind')}")


_WHY_NONE = {
    "stages": "the rows hold no seconds",
    "depths": "no policy of theirs can be made again from its label",
    "ends": "no policy of theirs can be made again from its label",
}


def _shown(inputs: ReportInputs, best: Summary | None) -> list[Summary]:
    """The chain, the policy of the verdict, what ran, and the best of other families, few enough to tell apart."""
    results = inputs.results
    chain = results.chain()
    ran = [policy for policy in results.policies if policy.policy_id in results.ran]
    summaries = [*([chain] if chain else []), *([best] if best else []), *ran, *results.finalists]
    return list({summary.policy_id: summary for summary in summaries}.values())[:MOST_SHOWN]


_SECTIONS = {
    "engines": (
        "Beside a live engine",
        "The same prompts, asked of a serving engine: does it do what the trace predicts of a chain?",
    ),
    "trees": (
        "Trees, text by text",
        (
            "The trees that two policies chose at the same place of a text, the target's path highlighted. Hover over "
            "a token, or tap it, to read what the drafter gave it."
        ),
    ),
    "slices": ("By kind of prompt", "The same by dataset, context length and turn."),
    "stages": ("Where the time goes", "Seconds of a round, stage by stage."),
    "rounds": (
        "Acceptance by depth, and where rounds end",
        "How many drafted tokens rounds accept, and why they end.",
    ),
    "scoring": (
        "Are the drafter's probabilities calibrated?",
        (
            "Best-first trees follow the drafter's marginals, which know nothing of the tokens before. How often are "
            "they right, on the greedy path and off it, and what does it cost?"
        ),
    ),
    "curves": (
        "Unimodality and early stopping",
        (
            "At each root expected tokens per second rise and fall with the size of the tree. Rules that stop at the "
            "first fall find the best size only where the curve is unimodal."
        ),
    ),
    "costs": ("Latency profile", ""),
}
"""Title and text of each section; that of the last is the heading of the prices."""


def _sections(inputs: ReportInputs, shown: Sequence[Summary], num_texts: int, missing: list[str]) -> list[Section]:
    """The sections for which everything is at hand, their parts worked out with a line of progress."""
    named = inputs.named([summary.policy for summary in shown])
    if (left := len(shown) - len(named)) > 0:
        missing.append(f"{left} of {len(shown)} policies cannot be made again from their labels; figures lack them.")
    texts = inputs.texts()
    is_short = bool(texts) and all(len(text.text) < 2 for text in texts)
    if is_short:
        missing.append("Every text has a single token, which the prefill gives; sections about rounds are left out.")
    has_rounds = inputs.trace is not None and not is_short
    makers: dict[str, Callable[[], list[Part]]] = {}
    if inputs.crosschecks:
        makers["engines"] = lambda: [crosscheck_grid(inputs.crosschecks)]
    if has_rounds and num_texts and named:
        makers["trees"] = lambda: [explorer(inputs, named, num_texts, missing)]
    makers["slices"] = lambda: _slices(inputs, shown)
    if inputs.results.has_seconds:
        makers["stages"] = lambda: _stages(inputs, shown)
    if has_rounds and named:
        makers["rounds"] = lambda: _rounds(inputs, named)
    if has_rounds:
        makers["scoring"] = lambda: _scoring(inputs)
    if has_rounds and inputs.cost is not None:
        makers |= {"curves": lambda: _curves(inputs, missing), "costs": lambda: _costs(inputs)}
    heading = "" if inputs.prices is None else inputs.prices.heading
    sections = []
    for key, parts in makers.items():
        title, text = _SECTIONS[key]
        with step("report", title):
            sections.append(Section(key, title, text or heading, parts()))
    return sections


def _slices(inputs: ReportInputs, shown: Sequence[Summary]) -> list[Part]:
    charts = [slice_chart(inputs.results, shown, by) for by in ("dataset", "context", "turn")]
    parts: list[Part] = [chart for chart in charts if chart is not None]
    return parts or ["All prompts are of one dataset, turn and range of lengths."]


def _stages(inputs: ReportInputs, shown: Sequence[Summary]) -> list[Part]:
    parts = (stage_chart(inputs.results, shown), stage_table(inputs.results, shown))
    notes = [
        text for confirmation in inputs.confirmed for text in (confirmation.prediction, _order(confirmation)) if text
    ]
    return [*(part for part in parts if part is not None), *notes]


def _order(confirmation: Confirmation) -> str:
    """Whether the prediction orders policies as the measurement does."""
    agreement = confirmation.rank_agreement
    if not agreement.get("separate"):
        return "No pair of policies was measured so precisely that its order is known."
    return (
        f"Of {agreement['pairs']} pairs of policies {agreement['separate']} have a measured interval that leaves out "
        f"equality; the prediction orders {agreement['same_order']} of these the same way."
    )


def _rounds(inputs: ReportInputs, named: Sequence[NamedPolicy]) -> list[Part]:
    assert inputs.trace is not None
    assert inputs.draft is not None
    depth = inputs.trace.manifest.draft_sets[inputs.draft].depth
    counts = [RoundCounts(depth) for _ in named]
    replay = Replay([(policy.policy, None) for policy in named])
    channels = channels_read(policy.policy for policy in named)
    for texts in inputs.trace.recorded_texts(inputs.draft, inputs.wanted, ROOTS_AT_ONCE, channels):
        for count, rounds in zip(counts, replay.rounds(texts), strict=True):
            count.add(texts, rounds)
    labels = [policy.label for policy in named]
    return [depth_chart(labels, counts), ends_chart(labels, counts)]


def _scoring(inputs: ReportInputs) -> list[Part]:
    trace, draft = inputs.trace, inputs.draft
    assert trace is not None
    assert draft is not None
    draft_set = trace.manifest.draft_sets[draft]
    named = inputs.named(_SCORED)
    num_texts = Counter((text.prompt.dataset, text.prompt.prompt_id) for text in inputs.texts())
    limits = ScoringLimits(min(64, draft_set.exact_budget), (16,), min(64, draft_set.min_width))
    texts = trace.recorded_texts(draft, inputs.wanted, ROOTS_AT_ONCE)
    cost = inputs.cost if inputs.cost is not None and inputs.cost.most_drafted >= max(limits.caps) else None
    parts = in_order(by_prompts(texts, num_texts), lambda part: score_trace(named, part, limits, cost), num_cores())
    return scoring_parts(Scoring.joined(list(parts)), [policy.label for policy in named])


def _curves(inputs: ReportInputs, missing: list[str]) -> list[Part]:
    trace, draft, cost = inputs.trace, inputs.draft, inputs.cost
    assert trace is not None
    assert draft is not None
    assert cost is not None
    most = max(1, min(trace.manifest.draft_sets[draft].exact_budget, cost.most_drafted))
    orders: dict[str, BestFirst] = {}
    for name, typed in zip(_EDGES, (f"ddtree:budget={most}", f"calibrated:budget={most}"), strict=True):
        for policy in inputs.named([typed]):
            order = order_of(policy.policy)
            if isinstance(order, BestFirst):
                orders[name] = order
    if "calibrated" not in orders:
        missing.append("No calibrated curves: no calibration comes with simlab for these models.")
    machine = curve_machine(cost, most)
    roots = roots_read_here(lambda: trace.recorded_texts(draft, inputs.wanted, ROOTS_AT_ONCE))
    rows, settings = curve_rows(orders, [machine], roots, most)
    summaries, names = curve_summaries(rows, settings), [f"{setting.edges} probabilities" for setting in settings]
    worst = worst_example(
        rows,
        settings[0],
        orders[settings[0].edges],
        machine,
        lambda index: next(trace.recorded_texts(draft, [index])),
        most,
    )
    return [
        maxima_chart(summaries, names),
        regret_chart(summaries, names),
        example_chart(worst),
        budget_chart(settings, names),
    ]


def _costs(inputs: ReportInputs) -> list[Part]:
    cost = inputs.cost
    assert cost is not None
    assert inputs.trace is not None
    texts = inputs.texts()
    middle = sorted(len(text.prompt.token_ids) + len(text.text) // 2 for text in texts)[len(texts) // 2]
    file = None if inputs.prices is None else inputs.prices.file
    middle = min(middle, cost.longest_context)
    return [cost_chart(cost, convex_view(cost), middle, 128, file is None or file.has_plain)]
