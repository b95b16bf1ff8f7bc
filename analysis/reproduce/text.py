"""Reproductions as people read them."""

import math
from collections.abc import Sequence

from simlab.analysis.compare.averaging import BothMeans, RankingFlip
from simlab.analysis.compare.verdicts import measure_name
from simlab.analysis.reproduce.checks import DIFFERS, NOT_KNOWN, SetupCheck
from simlab.analysis.reproduce.published import AVERAGING, POOLED_OF_PRINTED, PUBLISHED, PublishedFigure, PublishedStudy
from simlab.analysis.reproduce.released_rounds import MOST_COMMITTED, MOST_NODES, RatioWithInterval, ReleasedRounds
from simlab.analysis.reproduce.rows import BudgetFigures, ReproducedFigure
from simlab.analysis.statistics.intervals import FEW_PROMPTS
from simlab.analysis.table.text import aligned, number, with_interval

NOT_YET = "not yet run by us"
RUNS = "runs here"
FETCHES = "fetches its files"

_UNPAIRED = """It is of other rounds, which are not released, and which mean it is, is not
said: no paired comparison can be made, and the intervals are of one side alone."""
_PROFILES = """\
Profiles are no experiment: the policy chose each after it had seen the draft, so a long acceptance length
says when a profile is chosen, not what it brings. Tree sizes are not released, so waste has a bound only."""
_RELEASED_EQUAL = """\
Must be equal: nothing; these are their own rounds. Not known: what a logged time holds, and whether tokens
past the end of a text were counted in its last round."""


def availability_text(one: PublishedStudy) -> str:
    """Whether a figure can be reproduced with what comes with simlab, or with files that are fetched first."""
    if one.missing:
        return NOT_YET
    return FETCHES if one.release else RUNS


def studies_text() -> str:
    """All that are known, with their state."""
    cells = [["name", "state", "what"], *([one.name, availability_text(one), one.title] for one in PUBLISHED.values())]
    lines = [aligned(cells, [True] * 3)]
    lines += [f"{one.name}: {one.missing}." for one in PUBLISHED.values() if one.missing]
    return "\n\n".join(lines)


def missing_text(one: PublishedStudy) -> str:
    """One sentence of what is missing; what to type once it is there are the study's commands."""
    return f"`{one.name}` is {NOT_YET}: {one.missing}; once they are there:"


def study_heading(one: PublishedStudy) -> str:
    """What it is, and where their figures stand."""
    return f"{one.title}\ntheirs   {one.source}"


def figures_text(figures: Sequence[ReproducedFigure]) -> str:
    """Theirs, ours and the difference."""
    heads = ["", "of", "theirs", "ours [95 %]", "difference", "theirs within it", "theirs is"]
    cells = [heads, *(_figure(one) for one in figures)]
    return aligned(cells, [head in ("", "of", "ours [95 %]", "theirs is") for head in heads])


def _figure(figure: ReproducedFigure) -> list[str]:
    share = "-" if math.isnan(figure.ours) else f"{100 * figure.difference_share:+.1f} %"
    within = "-" if math.isnan(figure.interval.low) else "yes" if figure.is_within else "no"
    value = with_interval(figure.ours, figure.interval).rstrip()
    return [
        measure_name(figure.theirs.measure),
        figure.policy,
        _published(figure.theirs),
        value,
        share,
        within,
        figure.theirs.note,
    ]


def _published(one: PublishedFigure) -> str:
    return f"{one.value:.2f}"


def checks_text(checks: Sequence[SetupCheck]) -> str:
    """What must be equal, and a verdict on it."""
    differing = [one.what for one in checks if one.state == DIFFERS]
    unknown = [one.what for one in checks if one.state == NOT_KNOWN]
    if differing:
        verdict = f"Not a reproduction: {len(differing)} of what must be equal differs: {', '.join(differing)}."
    else:
        verdict = "All that the trace can show is equal."
    if unknown:
        verdict += f" Not known: {', '.join(unknown)}."
    cells = [["must be equal", "theirs", "ours", ""], *([one.what, one.theirs, one.ours, one.state] for one in checks)]
    return f"{aligned(cells, [True] * 4)}\n\n{verdict}"


def budgets_text(figures: Sequence[BudgetFigures], title: str, chosen: str) -> str:
    """A grid of budgets, the chosen one marked."""
    cells = [[title, "acceptance length", "macro avg", "tokens/s", ""]]
    for budget in figures:
        values = (budget.acceptance_length, budget.acceptance_length_macro, budget.tokens_per_s)
        cells.append(
            [budget.policy, *(number(value, 2) for value in values), "chosen" if budget.policy == chosen else ""]
        )
    return aligned(cells, [True, False, False, False, True])


def released_text(released: ReleasedRounds) -> str:
    """The released rounds of DDTree++."""
    means, theirs = released.means, PUBLISHED["ddtreepp-rounds"].figures
    quoted, baseline = theirs[0].value, theirs[1].value
    pooled = with_interval(means.pooled, means.pooled_interval).rstrip()
    macro = with_interval(means.macro, means.macro_interval).rstrip()
    cells = [
        ["acceptance length", "theirs", "ours [95 %]", "difference"],
        ["pooled", f"{quoted:.2f}", pooled, f"{means.pooled - quoted:+.3f}"],
        ["macro average (per response)", "", macro, f"{means.macro - quoted:+.3f}"],
        ["fixed budget of 128, as quoted", f"{baseline:.2f}", "its rounds are not released", ""],
    ]
    shares = [
        ["tokens/s by their logged round times", _share(released.tokens_per_s, 1, 1)],
        [f"rounds that commit all {MOST_COMMITTED} tokens, %", _share(released.whole_block, 100, 1)],
        [
            f"accepted per verified, if all trees had {MOST_NODES} nodes, at least",
            _share(released.least_accepted_per_verified, 1, 4),
        ],
    ]
    ends = means.over_interval
    over = f"{100 * (means.over - 1):.1f} % [{100 * (ends.low - 1):.1f}, {100 * (ends.high - 1):.1f}]"
    lines = [
        f"{released.rounds:,} rounds of {means.prompts} prompts",
        aligned(cells, [True, False, True, False]),
        f"{quoted} is the pooled mean. The macro average (per response) is {over} larger, paired over prompts.",
        f"{baseline} {_against(baseline, released)}. {_UNPAIRED}",
        aligned(shares, [True, True]),
        profiles_text(released),
        _PROFILES,
        _RELEASED_EQUAL,
    ]
    return "\n\n".join(lines)


def _against(value: float, released: ReleasedRounds) -> str:
    """Where a number lies beside both intervals."""
    intervals = (released.means.pooled_interval, released.means.macro_interval)
    if all(value > each.high for each in intervals):
        return "lies above both intervals"
    return "lies within an interval" if any(each.low <= value <= each.high for each in intervals) else "lies outside"


def profiles_text(released: ReleasedRounds) -> str:
    """Both means by width profile, and the most frequent one against each other."""
    first = released.profiles[0][1].run
    heads = ["width profile", "rounds", "prompts", "pooled [95 %]", "macro avg", f"{first} over it, paired [95 %]"]
    against = {each.second: each for each in released.against_profile}
    cells = [heads]
    for rounds, means in released.profiles:
        pair = against.get(means.run)
        ratio = "" if pair is None else f"{with_interval(pair.ratio, pair.ratio_interval).rstrip()} on {pair.prompts}"
        pooled = with_interval(means.pooled, means.pooled_interval)
        cells.append([means.run, f"{rounds:,}", str(means.prompts), pooled, number(means.macro, 2), ratio])
    return aligned(cells, [head not in ("rounds", "prompts", "macro avg") for head in heads])


def _share(one: RatioWithInterval, scale: float, digits: int) -> str:
    low, high = scale * one.interval.low, scale * one.interval.high
    return f"{scale * one.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def published_means_text() -> str:
    """The published pairs of means."""
    cells = [["theirs", "printed", "pooled", "larger by", ""]]
    for figure in AVERAGING.figures:
        pooled = POOLED_OF_PRINTED[figure.policy]
        larger = f"{100 * (figure.value / pooled - 1):.1f} %"
        cells.append([figure.policy, f"{figure.value:.2f}", f"{pooled:.2f}", larger, figure.note])
    return aligned(cells, [True, False, False, False, True])


def averaging_text(place: str, means: Sequence[BothMeans], flipped: Sequence[RankingFlip]) -> str:
    """Both means of each policy of one place, and the pairs that they rank differently."""
    heads = [f"{place}, {means[0].prompts} prompts", "pooled [95 %]", "macro avg [95 %]", "larger by, paired [95 %]"]
    cells = [heads]
    for both in means:
        over, ends = both.over, both.over_interval
        known = not math.isnan(ends.low) and ends.low != ends.high
        interval = f" [{100 * (ends.low - 1):+.1f}, {100 * (ends.high - 1):+.1f}]" if known else ""
        pooled, macro = with_interval(both.pooled, both.pooled_interval), with_interval(both.macro, both.macro_interval)
        cells.append([both.run, pooled, macro, f"{100 * (over - 1):+.1f} %{interval}"])
    parts = [aligned(cells, [True] * 4), flips_text(means, flipped)]
    if means[0].prompts < FEW_PROMPTS:
        parts.append(f"Fewer than {FEW_PROMPTS} prompts: the intervals are rough.")
    return "\n".join(parts)


def flips_text(means: Sequence[BothMeans], flipped: Sequence[RankingFlip]) -> str:
    """Which rankings turn round."""
    pairs = len(means) * (len(means) - 1) // 2
    if not pairs:
        return ""
    if not flipped:
        return f"No ranking flips among {pairs} pairs."
    told = sum(one.is_certain for one in flipped)
    lines = [f"{len(flipped)} of {pairs} pairs are ranked the other way round; both means tell {told} of them apart:"]
    for flip in flipped:
        pooled, macro = flip.pooled, flip.macro
        ratios = f"pooled {100 * (pooled.ratio - 1):+.2f} %, macro average {100 * (macro.ratio - 1):+.2f} %"
        lines.append(f"  {pooled.first} over {pooled.second}: {ratios}")
    return "\n".join(lines)
