"""Tables and claims of docs/explanation/field.md, out of the field.json of `simlab study field`.

A claim follows from a verdict of the file: Holm over the comparisons of its size, in predicted seconds the noise of the
prices as well. Sizes that nobody timed are claimed nothing of by seconds.
`make_claims.py` writes them into the page, `draw_field.py` takes the file over and draws.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training_table import shorter_trained, table, training, training_rows

from simlab.studies.field.rows import UNTIMED
from simlab.studies.field.rows import with_ends as field_figure
from simlab.studies.field.systems import BASELINE, CLOSE, COMPOSITION, FASTEST, NODES, PUBLISHED, VARIANTS

REPOSITORY = Path(__file__).resolve().parents[1]

ALL = "all"
SHOWN = 10
"""Systems of some tables: those with the largest predicted speedups, and the baseline."""
MISSED = 0.25
"""Share by which a latency profile misses a verification, above which the page shows it."""

Field = Mapping[str, Any]
Row = Mapping[str, Any]
Rows = Sequence[Row]

PAPERS = {
    "ddtree": "10.73 for the chain's 7.79 tokens a round (MATH-500, Qwen3-8B; arXiv 2604.12989)",
    "caddtree": "as few ms a token as the best fixed budget: 4.53 (MATH-500, Qwen3-4B; arXiv 2606.01813)",
    "bastion": "1.39 times as fast as the chain (Qwen3-8B, A100; its README)",
    "survival": "15 to 25 % more tokens a round than a tuned chain (on DSpark; arXiv 2609.22098)",
    "presto": "8.8 for the chain's 6.0 tokens a round (Qwen3-4B; arXiv 2607.22634)",
    "taps": "7.4 % more tokens a round than DDTree, both of 64, 0.7 % more a second (Qwen3-4B; its README)",
    "treeflash": "7.5 and 12.5 % more tokens a round than DDTree of 16 and 64, 3.9 and 9 % faster (arXiv 2606.03819)",
    "jetspec": "10.76 for DDTree's 9.81 tokens a round, both of 256 (MATH-500, Qwen3-8B; arXiv 2606.18394)",
    "d2sd": "7.05 for the chain's 5.31 tokens a round (Qwen3-8B; arXiv 2606.04446)",
    "entropy-width": "none: 8.86 for DDTree's 9.08 tokens a round, both of 128 (its notes)",
    "spine-gap": "4.70 for best-first's 4.31 tokens a round, of 13 to 17, and 5.82 of a deeper chain (its notes)",
}
"""What each source says of its own system on its own stack, some of it read at second hand; none was measured here."""


def rows_of(field: Field, size: str, part: str = ALL, prices: str | None = None) -> list[Row]:
    """The rows of a size on one data set, or on all prompts; by the machine's own prices where none are named."""
    by = prices or own_prices(field)
    return [row for row in field["rows"] if (row["size"], row["slice"], row["prices"]) == (size, part, by)]


def own_prices(field: Field) -> str:
    """The name of the prices by which the real models ran."""
    return str(field["models"]["dtype"])


def all_prices(field: Field) -> list[str]:
    """The names of all prices, the machine's own first."""
    return list(dict.fromkeys(row["prices"] for row in field["rows"]))


def with_ends(row: Row, name: str, digits: int, scale: float = 1) -> str:
    """As the command prints it, with the sign of a minus."""
    shown = re.sub(r"-(0\.0+)\b", r"\1", field_figure(row, name, digits, scale))
    return shown.replace("-", "\u2212")


def deviations(field: Field) -> dict[str, str]:
    """In what systems of this file are not as published, reconstructions aside, by system."""
    settings = {name: one["settings"] for name, one in field["models"]["channels"].items()}
    found = dict(VARIANTS)
    if "candidates" in settings.get("treeflash", {}):
        kept = settings["treeflash"]["candidates"]
        found["treeflash"] = f"a row is scored over the drafter's first {kept} candidates; published: the vocabulary"
    if "taps" in settings and (beam := settings["taps"].get("beam", 24)) != 48:
        found["taps"] = f"a beam of {beam}; published: 48"
    return {name: text for name, text in found.items() if any(row["system"] == name for row in field["rows"])}


def not_as_published(field: Field) -> str:
    """Variants, a line each."""
    return "\n".join(f"* `{name}`: {text}." for name, text in deviations(field).items())


def difference(row: Row, name: str) -> str:
    """A difference over DDTree in per cent, with ° where it does not stand."""
    return with_ends(row, name, 1, 100) + " °" * (row[f"{name}_differs"] is False)


def system(field: Field, row: Row, by_seconds: bool = False) -> str:
    """The name of a row, marked where it is not the published system, and by seconds where nobody timed its size."""
    star = " *" if row["reconstruction"] or row["system"] in deviations(field) else ""
    return f"`{row['system']}`{star}{f' {UNTIMED}' if by_seconds and row['untimed'] else ''}"


def policy(row: Row) -> str:
    """What a row typed, as it may stand in a table."""
    return f"`{row['policy']}`".replace("|", "\\|")


def by_system(rows: Rows) -> dict[str, Row]:
    """Rows by the name of their system."""
    return {row["system"]: row for row in rows}


def ordered_systems(field: Field) -> list[Row]:
    """One row of each system, in the order of the file."""
    return list(by_system([row for row in reversed(field["rows"]) if row["slice"] == ALL]).values())[::-1]


def tokens(field: Field) -> str:
    """Tokens a round at each number of drafted tokens, over the baseline of as many."""
    sizes = [str(nodes) for nodes in NODES]
    found = {size: by_system(rows_of(field, size)) for size in sizes}
    head = ["", *(f"{size} drafted, %" for size in sizes)]
    base = [with_ends(found[size][BASELINE], "acceptance_length", 2) for size in sizes]
    rows = [["`ddtree`, tokens a round", *base]]
    for one in ordered_systems(field):
        own = [found[size].get(one["system"]) for size in sizes]
        if one["system"] != BASELINE and any(own):
            rows.append([system(field, one), *("" if row is None else _at_nodes(row) for row in own)])
    return table(head, rows)


def _at_nodes(row: Row) -> str:
    """A difference in tokens, and the drafted tokens where their mean is not near the number that it was turned to."""
    drafted, size = row["nodes_per_round"], int(row["size"])
    beside = f" ({drafted:.1f})" if abs(drafted - size) > CLOSE * size else ""
    return f"{difference(row, 'gain_tokens')}{beside}"


def published(field: Field) -> str:
    """Each system at its published setting, beside the baseline of as many drafted tokens."""
    head = ["", "setting", "drafted", "tokens a round", "over DDTree of as many, %", "predicted speedup"]
    rows = [
        [
            system(field, row, by_seconds=True),
            policy(row),
            f"{row['nodes_per_round']:.1f}",
            with_ends(row, "acceptance_length", 2),
            difference(row, "gain_tokens"),
            with_ends(row, "predicted_speedup", 2),
        ]
        for row in rows_of(field, PUBLISHED)
    ]
    return table(head, rows)


def fastest(field: Field) -> str:
    """Each system at its fastest setting on dev by this machine's prices: predicted and measured."""
    names = ["setting", "drafted", "tokens a round", "predicted", "by prices", "over DDTree, %"]
    head = ["", *names, "measured", "over DDTree, %", "error, %"]
    rows = [
        [
            system(field, row, by_seconds=True),
            policy(row),
            f"{row['nodes_per_round']:.1f}",
            f"{row['acceptance_length']:.2f}",
            with_ends(row, "predicted_speedup", 2),
            _prices(row),
            difference(row, "gain_speed"),
            with_ends(row, "measured_speedup", 2),
            difference(row, "gain_measured"),
            _error(row),
        ]
        for row in rows_of(field, FASTEST)
    ]
    return table(head, rows)


def elsewhere(field: Field) -> str:
    """The same by the other prices, of the systems that have any there."""
    others = all_prices(field)[1:]
    found = {prices: by_system(rows_of(field, FASTEST, prices=prices)) for prices in others}
    head = [
        "",
        *(cell for prices in others for cell in (f"{prices}: setting", "drafted", "predicted", "over DDTree, %")),
    ]
    rows = []
    for one in ordered_systems(field):
        cells = [system(field, one)]
        for prices in others:
            row = found[prices].get(one["system"])
            cells += [""] * 4 if row is None else [
                policy(row) + f" {UNTIMED}" * row["untimed"],
                f"{row['nodes_per_round']:.1f}",
                with_ends(row, "predicted_speedup", 2),
                difference(row, "gain_speed"),
            ]  # fmt: skip
        rows += [cells] if any(cells[1:]) else []
    return table(head, rows)


def _prices(row: Row) -> str:
    ends = (row["predicted_speedup_price_low"], row["predicted_speedup_price_high"])
    return "" if None in ends else f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def error_of(row: Row, name: str = "predicted_on_measured") -> float | None:
    """By how much the predicted speedup is above the measured one, a share, on the prompts that ran."""
    if row["measured_speedup"] is None or row[name] is None:
        return None
    return float(row[name] / row["measured_speedup"] - 1)


def errors(field: Field, name: str = "predicted_on_measured") -> list[float]:
    """The errors of all systems at their fastest."""
    return [error for row in rows_of(field, FASTEST) if (error := error_of(row, name)) is not None]


def _error(row: Row) -> str:
    error = error_of(row)
    return "" if error is None else f"{100 * error:+.1f}".replace("-", "\u2212")


def by_dataset(field: Field) -> str:
    """Predicted speedups of the fastest systems, by data set, and the bounds."""
    names = list(field["prompts"])
    timed = [row for row in rows_of(field, FASTEST) if not row["untimed"]]
    first = sorted(timed, key=lambda row: row["predicted_speedup"], reverse=True)[:SHOWN]
    rows = []
    for row in timed:
        if row in first or row["system"] == BASELINE:
            parts = (by_system(rows_of(field, FASTEST, name))[row["system"]] for name in names)
            rows.append([system(field, row), *(with_ends(one, "predicted_speedup", 2) for one in parts)])
    for drafter, bound in _bounds(field):
        own = {
            one["slice"]: with_ends(one, "predicted_speedup", 2)
            for one in field["bounds"]
            if (one["drafter"], one["bound"]) == (drafter, bound)
        }
        shown = bound.replace("|", "\\|")
        rows.append([f"`{shown}`, {drafter}", *(own[name] for name in names)])
    return table(["", *names], rows)


def _bounds(field: Field) -> list[tuple[str, str]]:
    """Those of all trees of a draft set, and of the routers of a draft set the highest one."""
    whole = [one for one in field["bounds"] if one["slice"] == ALL]
    routers = [one for one in whole if "routes=" in one["bound"]]
    highest = {one["drafter"]: one for one in sorted(routers, key=lambda one: one["predicted_speedup"] or 0.0)}
    return [(one["drafter"], one["bound"]) for one in whole if one not in routers or one in highest.values()]


def stages(field: Field) -> str:
    """Milliseconds of each stage a round of 16, predicted, of the baseline and of systems with a pass of their own."""
    names = ("draft", "channel", "select", "verify")
    rows = [
        [
            system(field, row, by_seconds=True),
            f"{row['nodes_per_round']:.1f}",
            *("" if row[f"{name}_ms"] is None else f"{row[f'{name}_ms']:.1f}" for name in names),
        ]
        for row in rows_of(field, "16")
        if row["channel_ms"] or row["system"] == BASELINE
    ]
    return table(["", "drafted tokens", *(f"{name}, ms" for name in names)], rows)


def verification(field: Field) -> str:
    """What verification took in the runs of the real models, where the profile missed it by most."""
    rows = [
        [
            system(field, row, by_seconds=True),
            f"{row['nodes_per_round']:.1f}",
            *("" if row[name] is None else f"{row[name]:.1f}" for name in _VERIFY),
        ]
        for row in rows_of(field, FASTEST)
        if row["measured_verify_ms"] is not None
        and abs(row["predicted_verify_ms"] / row["measured_verify_ms"] - 1) > MISSED
    ]
    if not rows:
        return f"No system's differs by more than {100 * MISSED:.0f} %."
    return table(["", "drafted tokens", "predicted, ms", "by a profile made after the runs", "measured, ms"], rows)


_VERIFY = ("predicted_verify_ms", "predicted_after_verify_ms", "measured_verify_ms")


def chosen(field: Field) -> str:
    """What was timed, from how many settings systems were chosen, and how far their own search flatters them."""
    counts = [0, *field["size"]["node_counts"]]
    rows = rows_of(field, FASTEST)
    settings = sorted((row["chosen_from"], row["system"]) for row in rows)
    (fewest, first), (most, last) = settings[0], settings[-1]
    flattered = max(rows, key=lambda row: row["optimism"] or 0.0)
    machines = {name: text for by_name in field["prices"].values() for name, text in by_name.items()}
    lacking: dict[str, list[str]] = {}
    for row in ordered_systems(field):
        for prices in all_prices(field)[1:]:
            if row["system"] not in by_system(rows_of(field, FASTEST, prices=prices)):
                lacking.setdefault(prices, []).append(f"`{row['system']}`")
    timed = (
        f"**Prices**: {'; '.join(f'`{name}`: {text}' for name, text in machines.items())}. Rounds of "
        f"{', '.join(map(str, counts))} drafted tokens were timed here. {UNTIMED}: nobody timed rounds of that size, "
        "and in between prices and their noise are a straight line."
    )
    searched = (
        f"**Searched settings**: from {fewest} (`{first}`) to {most} (`{last}`) a system. The choice flatters most "
        f"`{flattered['system']}`: on the dev prompts it is {100 * (flattered['optimism'] or 0):.1f} % above nested "
        "choices there, each made on four fifths of the prompts and judged on the rest."
    )
    none = [f"**No prices of {prices}**: {', '.join(names)}." for prices, names in lacking.items()]
    return "\n".join(f"* {line}" for line in (timed, *none, searched))


def survives(field: Field) -> str:
    """What each source says of its system, and what is so here: at equal drafted tokens, and in seconds."""
    others = [prices for prices in all_prices(field) if prices not in field["models"]["timed"][1:]]
    sizes = {size: by_system(rows_of(field, size)) for size in ("16", "64")}
    seconds = {prices: by_system(rows_of(field, FASTEST, prices=prices)) for prices in others}
    head = [
        "",
        "its source, on its own stack",
        "tokens at 16, %",
        "at 64, %",
        *(f"seconds, {name}, %" for name in others),
    ]
    rows = []
    for one in ordered_systems(field):
        if one["system"] in PAPERS:
            name = one["system"]
            cells = [_gain(sizes[size].get(name), "gain_tokens") for size in sizes]
            cells += [_gain(seconds[prices].get(name), "gain_speed") for prices in others]
            rows.append([system(field, one), PAPERS[name], *cells])
    return table(head, rows)


def _gain(row: Row | None, name: str) -> str:
    if row is None:
        return "no cell"
    return "the baseline" if row["system"] == BASELINE else difference(row, name) or "not compared"


def _listed(field: Field, rows: Iterable[Row], name: str, policies: bool = False) -> str:
    ordered = sorted(rows, key=lambda row: -row[name])
    code = {id(row): f" (`{row['policy']}`)" if policies else "" for row in ordered}
    return (
        ", ".join(f"{system(field, row)}{code[id(row)]} {with_ends(row, name, 1, 100)}" for row in ordered)
        or "no system"
    )


def _verdicts(rows: Rows, name: str) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows above the baseline, below it, and those that are not told from it."""
    compared = [row for row in rows if row[f"{name}_differs"] is not None]
    differ = [row for row in compared if row[f"{name}_differs"]]
    above = [row for row in differ if row[name] > 0]
    return above, [row for row in differ if row not in above], [row for row in compared if row not in differ]


def _tokens_claim(field: Field) -> str:
    parts = []
    for size in ("16", "64"):
        above, below, rest = _verdicts(rows_of(field, size), "gain_tokens")
        number = len(above) + len(below) + len(rest)
        parts.append(
            f"with {size}, {len(above)} of {number}: {_listed(field, above, 'gain_tokens')}; {len(below)} add fewer, "
            f"{len(rest)} are not told from it"
        )
    return f"**At equal drafted tokens** systems that add more tokens a round than DDTree, %: {'. And '.join(parts)}."


def _training_claim(field: Field, shorter: Mapping[str, Any]) -> str:
    """What more training did to one system, beside its row; nothing where it is not in the field."""
    parts = []
    for row in shorter["rows"]:
        packaged = by_system(rows_of(field, row["size"])).get("eagle3")
        if packaged is not None:
            parts.append(f"with {row['size']} {difference(packaged, 'gain_tokens')} ({difference(row, 'gain_tokens')})")
    if not parts:
        return ""
    (cells,) = (cells for cells in training_rows() if cells[0] == "`eagle3-smollm2-135m`")
    return (
        f"**Training decides a row.** The packaged EAGLE-3 head drew {cells[4]} texts, of {cells[2]} different ones. "
        "Its trees over DDTree's of as many drafted tokens, tokens a round, % (in brackets those of the head packaged "
        f"before it, of {shorter['drawn']:,} draws and {shorter['texts']:,} texts): {', '.join(parts)}."
    )


def _seconds_claim(field: Field, prices: str) -> str:
    rows = [row for row in rows_of(field, FASTEST, prices=prices) if not row["untimed"]]
    above, below, rest = _verdicts(rows, "gain_speed")
    base = by_system(rows_of(field, FASTEST, prices=prices))[BASELINE]
    most = max(rows, key=lambda row: row["predicted_speedup"])
    return (
        f"**In predicted seconds, {prices}**, {len(above)} of {len(above) + len(below) + len(rest)} systems are faster "
        f"than DDTree at its fastest (`{base['policy']}`, {with_ends(base, 'predicted_speedup', 2)} times "
        f"autoregressive decoding), %: {_listed(field, above, 'gain_speed', policies=True)}. {len(below)} are slower, "
        f"{len(rest)} are not told from it. The largest predicted speedup is "
        f"{with_ends(most, 'predicted_speedup', 2)} (`{most['policy']}`)."
    )


def _together_claim(field: Field) -> str:
    parts = []
    for prices in all_prices(field):
        found = by_system(rows_of(field, FASTEST, prices=prices))
        if COMPOSITION in found:
            row = found[COMPOSITION]
            told = "" if row["gain_speed_differs"] else ", which does not stand"
            parts.append(
                f"{prices}: `{row['policy']}`, {with_ends(row, 'gain_speed', 1, 100)} % over DDTree at its fastest"
                f"{told} (chosen from {row['chosen_from']}, flattered by {100 * (row['optimism'] or 0):.1f} % on dev)"
            )
    return f"**Parts of all systems together** are at their fastest, {'; '.join(parts)}."


def _measured_claim(field: Field) -> str:
    rows = rows_of(field, FASTEST)
    above, below, rest = _verdicts(rows, "gain_measured")
    prompts = [row["measured_prompts"] for row in rows if row["measured_prompts"]]
    runs = field["confirmations"]
    texts, same, ties = (sum(run[name] for run in runs) for name in ("texts", "same_texts", "ties"))
    replayed = sum(run["rounds_equal_replay"] for run in runs)
    said = [f"predicted speedups are within 5 % of the measured ones {_within(errors(field))}"]
    if after := errors(field, "predicted_after"):
        said.append(f"by a profile made after the runs {_within(after)}")
    if same_rounds := equal_rounds(field):
        said.append(f"systems with the same rounds differ by up to {100 * max(same_rounds):.1f} % in what was measured")
    return (
        f"**On the real models** ({min(prompts, default=0)} to {max(prompts, default=0)} prompts each) {same} of "
        f"{texts} texts are plain decoding's token for token{_parted(field, same, texts, ties)}; in {replayed} of "
        f"{len(runs)} runs every round is the replay's. Of "
        f"{len(above) + len(below) + len(rest)} measured differences from DDTree {len(above) + len(below)} stand, %: "
        f"faster {_listed(field, above, 'gain_measured')}; {len(below)} are slower. In seconds {'; '.join(said)}."
    )


def equal_rounds(field: Field) -> list[float]:
    """By how much measured speedups of systems with the same rounds differ: noise, and the time of choosing."""
    parts = [by_system(rows_of(field, FASTEST, part)) for part in (ALL, *field["prompts"])]
    speeds: dict[tuple[Any, ...], list[float]] = {}
    for name, row in parts[0].items():
        if row["measured_speedup"] is not None:
            rounds = [(part[name]["acceptance_length"], part[name]["nodes_per_round"]) for part in parts]
            speeds.setdefault((row["drafter"], *rounds), []).append(row["measured_speedup"])
    return [max(some) / min(some) - 1 for some in speeds.values() if len(some) > 1]


def _parted(field: Field, same: int, texts: int, ties: int) -> str:
    """Why the other texts are not; a run in which a text has another reason is a failure."""
    if same == texts:
        return ""
    why = "a token that the target's own logits do not settle" if field["has_failed"] is False else "a fault"
    return f", the others part from it at {why} in {own_prices(field)} ({ties} such tokens, each judged in float32)"


def _within(found: Sequence[float]) -> str:
    if not found:
        return "for 0 of 0 systems"
    ends = " to ".join(f"{100 * end:+.1f}".replace("-", "\u2212") for end in (min(found), max(found)))
    return f"for {sum(abs(error) <= 0.05 for error in found)} of {len(found)} systems (errors {ends} %)"


def short(field: Field) -> str:
    """All claims of the page."""
    seconds = [_seconds_claim(field, prices) for prices in all_prices(field)]
    trained = _training_claim(field, shorter_trained())
    claims = (_tokens_claim(field), trained, *seconds, _together_claim(field), _measured_claim(field))
    return "\n".join(f"* {claim}" for claim in claims if claim)


def answer(field: Field) -> str:
    """The field in README's table of questions; no bar, since it stands in a table."""
    rows = [row for row in rows_of(field, FASTEST) if not row["untimed"]]
    most = max(rows, key=lambda row: row["predicted_speedup"])
    above, *_ = _verdicts(rows_of(field, "16"), "gain_tokens")
    first = sorted(above, key=lambda row: -row["gain_tokens"])[:1]
    best = _listed(field, first, "gain_tokens").replace(" *", " (not as published)")
    faster, *_ = _verdicts(rows, "gain_speed")
    ahead, behind, level = map(len, _verdicts(rows, "gain_measured"))
    return (
        f"all of them side by side, on two CPU cores in {own_prices(field)}: {len(faster)} systems are predicted to be "
        f"faster than DDTree (the largest speedup over autoregressive decoding: "
        f"{with_ends(most, 'predicted_speedup', 2)}). With 16 drafted tokens most tokens a round: {best} % over "
        f"DDTree. Of {ahead + behind + level} measured on the real models {ahead} are faster, {behind} slower"
    ).replace("|", "\\|")


PARTS: Mapping[str, Callable[[Field], str]] = {
    "short": short,
    "survives": survives,
    "chosen": chosen,
    "not-as-published": not_as_published,
    "training": lambda _: training(),
    "tokens": tokens,
    "published": published,
    "fastest": fastest,
    "elsewhere": elsewhere,
    "by-dataset": by_dataset,
    "stages": stages,
    "verification": verification,
}
"""All that the page asks for."""
