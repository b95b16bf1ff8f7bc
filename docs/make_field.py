"""Tables and claims of docs/explanation/field.md, out of the field.json of `simlab study field`.

A claim follows from a verdict of the file: Holm over the comparisons of its size, in predicted seconds the noise of the
prices as well. Sizes that nobody timed (`gap_of_row`) and unequal numbers of drafted tokens are claimed nothing of.
`make_claims.py` writes them into the page, `draw_field.py` takes the file over and draws.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simlab.studies.field.rows import UNTIMED, gap_of_row
from simlab.studies.field.rows import with_ends as field_figure
from simlab.studies.field.systems import HALF, VARIANTS

REPOSITORY = Path(__file__).resolve().parents[1]
CARDS = REPOSITORY / "real_runner" / "data"

ALL, FASTEST, BASELINE = "all", "fastest", "ddtree"
SHOWN = 10
"""Systems of some tables: those with the largest predicted speedups, and the baseline."""

Field = Mapping[str, Any]
Row = Mapping[str, Any]
Rows = Sequence[Row]

MISSED = 0.25
"""Share by which a latency profile misses a verification, above which the page shows it."""


def rows_of(field: Field, size: str, part: str = ALL) -> list[Row]:
    """The rows of a size on one data set, or on all prompts."""
    return [row for row in field["rows"] if row["size"] == size and row["slice"] == part]


def datasets(field: Field) -> list[str]:
    """The data sets, in the order of the prompts."""
    return list(field["prompts"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of Markdown; all columns but the first end at the right."""
    marks = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def with_ends(row: Row, name: str, digits: int, scale: float = 1) -> str:
    """As the command prints it, with the sign of a minus."""
    return field_figure(row, name, digits, scale).replace("-", "\u2212")


def deviations(field: Field) -> dict[str, str]:
    """In what systems of this file are not as published, reconstructions aside, by system."""
    settings = {name: one["settings"] for name, one in field["models"]["channels"].items()}
    found = dict(VARIANTS)
    floors = {
        match[1]
        for row in field["rows"]
        if row["system"] == "bastion" and row["size"] != FASTEST and (match := re.search(r"floor=(\d+)", row["policy"]))
    }
    if floors - {"32"}:
        found["bastion"] = f"a floor of {', '.join(sorted(floors))} nodes; published: 32"
    if "candidates" in settings.get("treeflash", {}):
        kept = settings["treeflash"]["candidates"]
        found["treeflash"] = f"a row is scored over the drafter's first {kept} candidates; published: the vocabulary"
    if "taps" in settings and (beam := settings["taps"].get("beam", 24)) != 48:
        found["taps"] = f"a beam of {beam}; published: 48"
    return {name: text for name, text in found.items() if any(row["system"] == name for row in field["rows"])}


def untimed(field: Field, row: Row) -> bool:
    """Whether nobody timed rounds of a row's size."""
    return gap_of_row(row, field["size"]["node_counts"]) is not None


def difference(row: Row, name: str) -> str:
    """A difference over DDTree in per cent, with ° where it does not stand."""
    return with_ends(row, name, 1, 100) + " °" * (row[f"{name}_differs"] is False)


def system(field: Field, row: Row, by_seconds: bool = False) -> str:
    """The name of a row, marked where it is not the published system, and by seconds where nobody timed its size."""
    star = " *" if row["reconstruction"] or row["system"] in deviations(field) else ""
    return f"`{row['system']}`{star}{f' {UNTIMED}' if by_seconds and untimed(field, row) else ''}"


def baseline(field: Field, size: str, part: str = ALL) -> Row:
    """DDTree's row of a size."""
    return next(row for row in rows_of(field, size, part) if row["system"] == BASELINE)


def has_equal_nodes(field: Field, row: Row) -> bool:
    """Whether a row drafts as many tokens a round as DDTree of its size."""
    return bool(abs(row["nodes_per_round"] - baseline(field, row["size"])["nodes_per_round"]) < HALF)


def equal_nodes(field: Field) -> str:
    """Tokens a round with at most so many drafted, and the gain over DDTree where that drafts as many."""
    sizes = ("16", "64")
    head = [
        "",
        *(
            cell
            for size in sizes
            for cell in (f"at most {size}: drafted", "tokens a round", "over DDTree of as many, %")
        ),
    ]
    larger = {row["system"]: row for row in rows_of(field, "64")}
    rows = []
    for row in rows_of(field, "16"):
        cells = [system(field, row)]
        for one in (row, larger[row["system"]]):
            name = "gain_tokens" if has_equal_nodes(field, one) else "gain_tokens_own"
            known = f"no DDTree of {one['nodes_per_round']:.0f}"
            if name == "gain_tokens" or one.get(name) is not None:
                known = difference(one, name)
            cells += [f"{one['nodes_per_round']:.1f}", with_ends(one, "acceptance_length", 2), known]
        rows.append(cells)
    return table(head, rows)


def fastest(field: Field) -> str:
    """Each system at its fastest setting on dev: seconds, predicted and measured."""
    head = [
        "",
        "setting",
        "drafted",
        "tokens a round",
        "predicted",
        "by prices",
        "over DDTree, %",
        "measured",
        "over DDTree, %",
        "error, %",
    ]
    return table(
        head,
        [
            [
                system(field, row, by_seconds=True),
                f"`{row['policy']}`".replace("|", "\\|"),
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
        ],
    )


def _prices(row: Row) -> str:
    ends = (row["predicted_speedup_price_low"], row["predicted_speedup_price_high"])
    return "" if None in ends else f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def error_of(row: Row) -> float | None:
    """By how much the predicted speedup is above the measured one, a share, on the prompts that ran."""
    if row["measured_speedup"] is None or row["predicted_on_measured"] is None:
        return None
    return float(row["predicted_on_measured"] / row["measured_speedup"] - 1)


def errors(field: Field) -> list[float]:
    """The errors of all systems at their fastest."""
    return [error for row in rows_of(field, FASTEST) if (error := error_of(row)) is not None]


def _error(row: Row) -> str:
    error = error_of(row)
    return "" if error is None else f"{100 * error:+.1f}".replace("-", "−")


def by_dataset(field: Field) -> str:
    """Predicted speedups of the fastest systems, by data set, and the bounds."""
    names = datasets(field)
    timed = [row for row in rows_of(field, FASTEST) if not untimed(field, row)]
    fastest = sorted(timed, key=lambda row: row["predicted_speedup"], reverse=True)[:SHOWN]
    rows = []
    for row in timed:
        if row not in fastest and row["system"] != BASELINE:
            continue
        parts = [
            with_ends(one, "predicted_speedup", 2)
            for name in names
            for one in rows_of(field, FASTEST, name)
            if one["system"] == row["system"]
        ]
        rows.append([system(field, row, by_seconds=True), *parts])
    bounds = {(bound["drafter"], bound["bound"]): bound for bound in field["bounds"] if bound["slice"] == ALL}
    for drafter, name in bounds:
        parts = [
            with_ends(one, "predicted_speedup", 2)
            for part in names
            for one in field["bounds"]
            if (one["drafter"], one["bound"], one["slice"]) == (drafter, name, part)
        ]
        shown = name.replace("|", "\\|")
        rows.append([f"`{shown}`, {drafter}", *parts])
    return table(["", *names], rows)


def stages(size: str) -> Callable[[Field], str]:
    """Milliseconds of each stage a round, predicted, of the baseline and of systems with a pass of their own."""

    def made(field: Field) -> str:
        names = ("draft", "channel", "select", "verify")
        head = ["", "drafted tokens", *(f"{name}, ms" for name in names)]
        return table(
            head,
            [
                [
                    system(field, row, by_seconds=True),
                    f"{row['nodes_per_round']:.1f}",
                    *("" if row[f"{name}_ms"] is None else f"{row[f'{name}_ms']:.1f}" for name in names),
                ]
                for row in rows_of(field, size)
                if row["channel_ms"] or row["system"] == BASELINE
            ],
        )

    return made


def verification(field: Field) -> str:
    """What verification took in the runs of the real models, where the profile missed it by most."""
    rows = [
        [
            system(field, row, by_seconds=True),
            f"{row['nodes_per_round']:.1f}",
            f"{row['predicted_verify_ms_on_measured']:.1f}",
            f"{row['measured_verify_ms']:.1f}",
        ]
        for row in rows_of(field, FASTEST)
        if row["measured_verify_ms"] is not None
        and abs(row["predicted_verify_ms_on_measured"] / row["measured_verify_ms"] - 1) > MISSED
    ]
    return table(["", "drafted tokens", "predicted, ms", "measured, ms"], rows)


def gpu_like(size: str) -> Callable[[Field], str]:
    """Speedups of the fastest systems where a pass of up to 64 tokens takes as long as one of 64."""

    def made(field: Field) -> str:
        head = ["", "speedup, WHAT IF", "over DDTree, %"]
        found = rows_of(field, size)
        fastest = sorted(found, key=lambda row: row["gpu_like_speedup"] or 0.0, reverse=True)[:SHOWN]
        return table(
            head,
            [
                [
                    system(field, row, by_seconds=True),
                    with_ends(row, "gpu_like_speedup", 2),
                    difference(row, "gain_gpu_like"),
                ]
                for row in found
                if row in fastest or row["system"] == BASELINE
            ],
        )

    return made


def training(_: Field) -> str:
    """What each packaged network was trained on, out of the cards beside the weights."""
    rows = []
    for folder in sorted(CARDS.iterdir()):
        card = (folder / "README.md").read_text(encoding="utf-8")
        own = re.search(r"own parameters \| ([\d,]+)", card)
        text = re.search(r"^([\d,]+) texts of ([\d,]+) tokens", card, re.MULTILINE)
        seen = re.search(r"Seen in training: ([\d,]+) texts", card)
        start = re.search(r"^\| start \| (.+) \|$", card, re.MULTILINE)
        if own and text and seen and start:
            rows.append([f"`{folder.name}`", own[1], text[1], text[2], seen[1], start[1].split(":")[0].split(";")[0]])
    return table(["", "own parameters", "texts", "tokens", "texts drawn", "started from"], rows)


def not_as_published(field: Field) -> str:
    """Variants, a line each."""
    return "\n".join(f"* `{name}`: {text}." for name, text in deviations(field).items())


def _listed(field: Field, rows: Iterable[Row], name: str, policies: bool = False) -> str:
    ordered = sorted(rows, key=lambda row: -row[name])
    code = {id(row): f" (`{row['policy']}`)" if policies else "" for row in ordered}
    return (
        ", ".join(f"{system(field, row)}{code[id(row)]} {with_ends(row, name, 1, 100)}" for row in ordered)
        or "no system"
    )


def _tokens_claim(field: Field, size: str) -> str:
    rows = [row for row in rows_of(field, size) if row["gain_tokens"] is not None]
    equal = [row for row in rows if has_equal_nodes(field, row)]
    differ = [row for row in equal if row["gain_tokens_differs"]]
    above = [row for row in differ if row["gain_tokens"] > 0]
    rest = ", ".join(system(field, row) for row in equal if row not in differ) or "no system"
    return (
        f"**With {size} drafted tokens a round** {len(above)} of {len(equal)} systems add more tokens a round than "
        f"DDTree, %: {_listed(field, above, 'gain_tokens')}. {len(differ) - len(above)} add fewer. Not told from "
        f"DDTree: {rest}. {len(rows) - len(equal)} others draft fewer than {size}, and are not compared."
    )


def _seconds_rows(field: Field, part: str = ALL) -> list[Row]:
    """Rows whose size is timed, compared with DDTree at its fastest; a policy that stands twice once."""
    sizes = [
        size for size in ("16", "64", FASTEST) if baseline(field, size)["policy"] == baseline(field, FASTEST)["policy"]
    ]
    rows = [row for size in sizes for row in rows_of(field, size, part) if row["gain_speed"] is not None]
    by_policy = {row["policy"]: row for row in rows if not untimed(field, row)}
    return list(by_policy.values())


def _faster(field: Field, part: str = ALL) -> list[Row]:
    return [row for row in _seconds_rows(field, part) if row["gain_speed_differs"] and row["gain_speed"] > 0]


def _seconds_claim(field: Field) -> str:
    rows, faster = _seconds_rows(field), _faster(field)
    slower = sum(row["gain_speed_differs"] and row["gain_speed"] < 0 for row in rows)
    return (
        f"**In predicted seconds** {len(faster)} of {len(rows)} settings whose size was timed are faster than "
        f"`{baseline(field, FASTEST)['policy']}`, DDTree at its fastest, %: "
        f"{_listed(field, faster, 'gain_speed', policies=True)}. {slower} are slower, "
        f"{len(rows) - len(faster) - slower} are not told from it."
    )


def _parts_claim(field: Field) -> str:
    parts = []
    for name in datasets(field):
        most = sorted(_faster(field, name), key=lambda row: -row["gain_speed"])[:1]
        parts.append(f"{name}: {_listed(field, most, 'gain_speed', policies=True)}")
    return f"**By data set** the largest of these differences, %. {'; '.join(parts)}."


def _autoregressive_claim(field: Field) -> str:
    most, above, number = _over_plain(field)
    return (
        "**Over autoregressive decoding**, on the mix of prompts, the largest predicted speedup is "
        f"{with_ends(most, 'predicted_speedup', 2)} (`{most['policy']}`); {above} of {number} have an interval "
        "above 1, before any correction."
    )


def _over_plain(field: Field) -> tuple[Row, int, int]:
    """The largest predicted speedup whose size was timed, how many have an interval above 1, and of how many."""
    rows = [row for row in field["rows"] if row["slice"] == ALL and row["predicted_speedup_low"] is not None]
    timed = [row for row in rows if not untimed(field, row)]
    above = sum(row["predicted_speedup_low"] > 1 for row in timed)
    return max(timed, key=lambda row: row["predicted_speedup"]), above, len(timed)


def _measured_claim(field: Field) -> str:
    rows = [row for row in rows_of(field, FASTEST) if row["gain_measured_differs"] is not None]
    differ = sum(row["gain_measured_differs"] for row in rows)
    prompts = [row["measured_prompts"] for row in field["rows"] if row["slice"] == ALL and row["measured_prompts"]]
    fewest, most = min(prompts, default=0), max(prompts, default=0)
    runs = field["confirmations"]
    texts, same = (sum(run[name] for run in runs) for name in ("texts", "same_texts"))
    replayed = sum(run["rounds_equal_replay"] for run in runs)
    return (
        f"**On the real models** ({fewest} to {most} prompts each) {same} of {texts} texts are the target's own, and "
        f"in {replayed} of {len(runs)} runs every round is the replay's. Of {len(rows)} measured differences from "
        f"DDTree {differ} stand."
    )


def _errors_claim(field: Field) -> str:
    parts = []
    for is_timed, what in ((True, "was timed"), (False, "was not")):
        rows = [row for row in rows_of(field, FASTEST) if untimed(field, row) is not is_timed]
        own = [error for row in rows if (error := error_of(row)) is not None]
        if own:
            ends = " to ".join(f"{100 * end:+.1f}".replace("-", "\u2212") for end in (min(own), max(own)))
            within = sum(abs(error) <= 0.05 for error in own)
            parts.append(f"{within} of {len(own)} systems whose size {what} (errors {ends} %)")
    return f"**Predicted speedups** are within 5 % of the measured ones for {', and for '.join(parts)}."


def _most_tokens(field: Field) -> Row:
    rows = [row for row in rows_of(field, "16") if row["gain_tokens_differs"] and has_equal_nodes(field, row)]
    return max(rows, key=lambda row: row["gain_tokens"])


def _price_claim(field: Field) -> str:
    most, base = _most_tokens(field), baseline(field, "16")
    larger = next(row for row in rows_of(field, "64") if row["system"] == most["system"])
    gpu_like = (
        f"{one['gpu_like_speedup']:.2f} and {baseline(field, one['size'])['gpu_like_speedup']:.2f} with {one['size']}"
        for one in (most, larger)
    )
    return (
        f"**What they take**: {system(field, most)} is predicted at {most['predicted_speedup']:.2f} times "
        f"autoregressive decoding with 16 drafted tokens, DDTree at {base['predicted_speedup']:.2f}; with GPU-like "
        f"prices {', '.join(gpu_like)}."
    )


def sizes(field: Field) -> str:
    """Of which sizes rounds were timed, and from how many settings systems were chosen."""
    counts = [0, *field["size"]["node_counts"]]
    chosen = sorted((row["chosen_from"], row["system"]) for row in rows_of(field, FASTEST))
    (fewest, first), (most, last) = chosen[0], chosen[-1]
    return (
        f"* **{UNTIMED}: nobody timed rounds of this size.** The profile of this run has {', '.join(map(str, counts))} "
        "drafted tokens; in between its prices, and their noise, are a straight line. Such rows are claimed nothing of "
        "by seconds, and `simlab study field` chooses them no more.\n"
        f"* **Searched settings**: from {fewest} (`{first}`) to {most} (`{last}`) a system."
    )


def short(field: Field) -> str:
    """All claims of the page."""
    claims = (
        _tokens_claim(field, "16"),
        _tokens_claim(field, "64"),
        _price_claim(field),
        _seconds_claim(field),
        _parts_claim(field),
        _autoregressive_claim(field),
        _measured_claim(field),
        _errors_claim(field),
    )
    return "\n".join(f"* {claim}" for claim in claims)


def answer(field: Field) -> str:
    """The field in README's table of questions; no bar, since it stands in a table."""
    most = _most_tokens(field)
    fastest, above, number = _over_plain(field)
    none = "nothing is predicted to be faster than autoregressive decoding"
    found = f"**{none}**" if above == 0 else f"{above} of {number} settings are predicted to be faster"
    measured = sum(bool(row["gain_measured_differs"]) for row in rows_of(field, FASTEST))
    name = f"{most['system']}{' (not as published)' if '*' in system(field, most) else ''}"
    return (
        f"all of them side by side, on two CPU cores in float32: {found} (the best: "
        f"{with_ends(fastest, 'predicted_speedup', 2)}). With 16 drafted tokens most tokens a round: {name}, "
        f"{with_ends(most, 'gain_tokens', 1, 100)} % over DDTree. Significant measured differences: {measured}"
    )


PARTS: Mapping[str, Callable[[Field], str]] = {
    "short": short,
    "sizes": sizes,
    "not-as-published": not_as_published,
    "training": training,
    "tokens": equal_nodes,
    "fastest": fastest,
    "by-dataset": by_dataset,
    "stages-16": stages("16"),
    "verification": verification,
    "gpu-like-64": gpu_like("64"),
}
"""All that the page asks for."""
