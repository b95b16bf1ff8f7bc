"""Published figures beside ours: what was printed, what comes out here, and what would have to be equal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from simlab.analysis.reproduce.published import PUBLISHED, PublishedStudy
from simlab.analysis.reproduce.released_rounds import read_released, released_rounds
from simlab.analysis.reproduce.text import availability_text, released_text, study_heading
from simlab.errors import UsageError, named_or_listed
from simlab.studies.reproduce.of_releases import RELEASED, of_release
from simlab.studies.reproduce.of_traces import averaging, of_trace
from simlab.studies.reproduce.options import ReproduceOptions, check_options
from simlab.studies.result import StudyResult


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(StudyResult):
    """A published figure: theirs, ours, and what would have to be equal.

    Attributes:
        published: what was published.
        tables: the comparison as ``simlab study reproduce`` prints it.
        values: what ``--json`` prints beside name, title and source.
    """

    published: PublishedStudy
    tables: str
    values: Mapping[str, object]

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab study reproduce NAME --json`` prints."""
        one = self.published
        return {"name": one.name, "title": one.title, "source": one.source, **self.values}

    def text(self) -> str:
        """The tables as ``simlab study reproduce NAME`` prints them."""
        return self.tables


def published_figures() -> dict[str, object]:
    """List the figures that are known, and whether each can be run here, as ``simlab study reproduce --json`` does."""
    rows = [
        {
            "name": one.name,
            "state": availability_text(one),
            "title": one.title,
            "source": one.source,
            "missing": one.missing,
        }
        for one in PUBLISHED.values()
    ]
    return {"rows": rows}


def reproduce(name: str, options: ReproduceOptions | None = None) -> Reproduction:
    """Work a published figure out again, beside the figure itself.

    Args:
        name: of the figure; `published_figures` lists them.
        options: traces, prices and policies, as far as the figure needs them.

    Raises:
        SimlabError: there is no such figure, or what it needs is not there.
    """
    options = ReproduceOptions() if options is None else options
    if name not in PUBLISHED:
        listed = f"there are {', '.join(PUBLISHED)}"
        raise UsageError(f"there is no published figure `{name}`{named_or_listed(name, PUBLISHED, listed)}")
    check_options(name, options)
    one = PUBLISHED[name]
    return Reproduction(one, *_REPRODUCTIONS[name](options, one))


def _released(_options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    found = released_rounds(read_released())
    values = {
        "theirs": [asdict(figure) for figure in one.figures],
        "rounds": found.rounds,
        **found.means.row(),
        **found.tokens_per_s.row("tokens_per_s"),
        **found.whole_block.row("whole_block_share"),
        **found.least_accepted_per_verified.row("least_accepted_per_verified"),
        "rows": [{"rounds": rounds, **means.row()} for rounds, means in found.profiles],
        "comparisons": [each.row() for each in found.against_profile],
    }
    return f"{study_heading(one)}\n\n{released_text(found)}", values


_REPRODUCTIONS = {
    "ddtreepp-rounds": _released,
    "averaging": averaging,
    "zlab-166": of_trace,
    "ddtree-gsm8k": of_trace,
    **dict.fromkeys(RELEASED, of_release),
}
