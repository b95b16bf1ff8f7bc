"""What a campaign found, as a table for people, as JSON, and as a list of causes with an example of each."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from attack_cases import Finding
from attack_judge import BAD, CLASSES
from attack_kills import FINE, LOST, Trial


def markdown_table(findings: Sequence[Finding]) -> str:
    """Kinds of input down, classes across, and the sums: Markdown that can be pasted into a page."""
    counts = Counter((finding.kind, finding.outcome) for finding in findings)
    kinds = list(dict.fromkeys(sorted(finding.kind for finding in findings)))
    lines = [
        "| kind of input | cases | " + " | ".join(CLASSES) + " |",
        "|---|---:|" + "---:|" * len(CLASSES),
        *(_line(kind, [counts[kind, outcome] for outcome in CLASSES]) for kind in kinds),
        _line("all", [sum(counts[kind, outcome] for kind in kinds) for outcome in CLASSES]),
    ]
    return "\n".join(lines)


def _line(name: str, numbers: Sequence[int]) -> str:
    return f"| {name} | {sum(numbers):,} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def summary(findings: Sequence[Finding]) -> str:
    """What else is to be said of all cases: the longest, the largest, those that were run as processes too."""
    whole = [finding for finding in findings if finding.whole]
    lines = [f"{sum(finding.outcome in BAD for finding in findings):,} of {len(findings):,} cases are bad."]
    if findings:
        longest = max(findings, key=lambda one: one.seconds)
        largest = max(findings, key=lambda one: one.peak_bytes)
        lines.append(f"Longest: {longest.seconds:.1f} s ({longest.case}).")
        lines.append(f"Most resident memory: {largest.peak_bytes / (1 << 20):,.0f} MB ({largest.case}).")
    if whole:
        lines.append(f"{len(whole):,} cases were run as processes of their own too; {disagreeing(findings)} disagree.")
    if shared := [finding for finding in findings if finding.shared]:
        listed = ", ".join(f"{one.case} ({one.shared})" for one in shared)
        lines.append(f"Bad only in the process that runs case after case, and not in one of their own: {listed}.")
    return "\n".join(lines)


def disagreeing(findings: Sequence[Finding]) -> int:
    """How many cases have another class as a process of their own."""
    return sum(finding.whole not in ("", finding.outcome) for finding in findings)


def causes(findings: Sequence[Finding]) -> str:
    """Each kind and cause of bad cases with their number, an example and how to repeat it; Markdown."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if finding.outcome in BAD:
            grouped.setdefault((finding.kind, finding.signature), []).append(finding)
    lines = []
    for (kind, signature), some in sorted(grouped.items(), key=lambda item: (item[0][0], -len(item[1]))):
        first = min(some, key=lambda one: len(one.note) + len(one.command))
        lines += [
            f"- **{kind}**: {signature} ({len(some)} cases)",
            f"  - {shown(first.note)}",
            f"  - `{shown(first.command)}`",
            f"  - {shown(first.why)}",
            f"  - repeat: `make attack CASE={first.case}`",
        ]
    return "\n".join(lines)


def shown(text: str, most: int = 300) -> str:
    """A text in one line that a terminal can be shown."""
    plain = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return plain if len(plain) <= most else plain[:most] + " ..."


def trials_table(kills: Sequence[Trial]) -> str:
    """What came of kills, as Markdown."""
    lines = ["| trial | trials | kills | fine | lost |", "|---|---:|---:|---:|---:|"]
    for name in sorted({kill.name for kill in kills}):
        mine = [kill for kill in kills if kill.name == name]
        fine, killed = sum(trial.outcome == FINE for trial in mine), sum(trial.kills for trial in mine)
        lines.append(f"| {name} | {len(mine)} | {killed} | {fine} | {len(mine) - fine} |")
    return "\n".join(lines)


def as_markdown(findings: Sequence[Finding], kills: Sequence[Trial]) -> str:
    """All that was found, for people and pages."""
    parts = [markdown_table(findings), summary(findings), causes(findings)] if findings else []
    if kills:
        lost = [kill for kill in kills if kill.outcome == LOST]
        parts += [trials_table(kills), "\n".join(f"- {trial.name} {trial.seed}: {shown(trial.why)}" for trial in lost)]
    return "\n\n".join(part for part in parts if part)


def as_json(findings: Sequence[Finding], trials: Sequence[Trial], seed: int) -> str:
    """Counts by kind and class, every bad case, and every kill."""
    counts: dict[str, dict[str, int]] = {}
    for finding in findings:
        by_class = counts.setdefault(finding.kind, dict.fromkeys(CLASSES, 0))
        by_class[finding.outcome] += 1
    bad = [asdict(finding) for finding in findings if finding.outcome in BAD]
    facts = {"seed": seed, "cases": len(findings), "disagreeing": disagreeing(findings)}
    return json.dumps(facts | {"counts": counts, "bad": bad, "trials": [asdict(trial) for trial in trials]}, indent=1)
