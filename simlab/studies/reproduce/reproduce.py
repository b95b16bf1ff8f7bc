"""Published figures beside ours: what was printed, what comes out here, and what would have to be equal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simlab.errors import UsageError, named_or_listed
from simlab.options import study
from simlab.studies.reproduce.adixg_cost import adixg_cost
from simlab.studies.reproduce.ddtreepp_rounds import ddtreepp_rounds
from simlab.studies.reproduce.domino.caddtree import domino_caddtree
from simlab.studies.reproduce.domino.gsm8k import domino_gsm8k
from simlab.studies.reproduce.domino.lossless import domino_lossless
from simlab.studies.reproduce.domino.rounds import domino_rounds
from simlab.studies.reproduce.of_traces import averaging, chain_of_trace, trees_of_traces
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import PUBLISHED, PublishedStudy
from simlab.studies.reproduce.released import Findings, ReleasedFiles, Row, read_release, table
from simlab.studies.reproduce.specdecode.bench import specdecode_bench
from simlab.studies.result import StudyResult

RELEASED: Mapping[str, Callable[[ReleasedFiles, ReproduceOptions], Findings]] = {
    "domino-rounds": domino_rounds,
    "domino-gsm8k": domino_gsm8k,
    "domino-caddtree": domino_caddtree,
    "domino-lossless": domino_lossless,
    "specdecode-bench": specdecode_bench,
    "adixg-cost": adixg_cost,
}
"""What is worked out from released files, by the name under which it is asked for."""

_OTHERS: Mapping[str, Callable[[ReproduceOptions, PublishedStudy], tuple[str, Row]]] = {
    "ddtreepp-rounds": ddtreepp_rounds,
    "averaging": averaging,
    "zlab-166": chain_of_trace,
    "ddtree-gsm8k": trees_of_traces,
}

_TYPED = {
    "traces": "--trace",
    "dev_trace": "--dev-trace",
    "draft_set": "--draft-set",
    "cost": "--cost",
    "policies": "--policy",
    "limit": "--limit",
    "progress": "--progress",
    "data": "--data",
}
"""How each option is typed."""


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(StudyResult):
    """A published figure: theirs, ours, and what would have to be equal; or the list of all.

    Attributes:
        tables: as ``simlab study reproduce`` prints it.
        values: what ``--json`` prints.
    """

    tables: str
    values: Row

    def to_json(self) -> Row:
        """The value that ``simlab study reproduce NAME --json`` prints."""
        return self.values

    def text(self) -> str:
        """The tables as ``simlab study reproduce NAME`` prints them."""
        return self.tables


@study(ReproduceOptions)
def reproduce(options: ReproduceOptions) -> Reproduction:
    """Work a published figure out again, beside the figure itself; without a name, list those that are known.

    Args:
        options: which figure; traces, prices, policies and files, as far as it needs them.

    Raises:
        SimlabError: there is no such figure, or what it needs is not there.
    """
    name = options.name
    if name is not None and name not in PUBLISHED:
        listed = f"there are {', '.join(PUBLISHED)}"
        raise UsageError(f"there is no published figure `{name}`{named_or_listed(name, PUBLISHED, listed)}")
    used = () if name is None else PUBLISHED[name].uses
    for field, typed in _TYPED.items():
        if getattr(options, field) not in (None, ()) and field not in used:
            raise UsageError(f"{typed} says nothing to {name or 'the list'}; leave it out")
    if len(options.traces) > 1 and name != "averaging":
        raise UsageError(f"{name} takes one --trace; got {len(options.traces)}")
    if name is None:
        return _listed()
    published = PUBLISHED[name]
    text, values = _of_release(options, published) if published.release else _OTHERS[name](options, published)
    return Reproduction(text, {"name": published.name, "title": published.title, "source": published.source, **values})


def _listed() -> Reproduction:
    """The figures that are known, and whether each can be run here."""
    studies = PUBLISHED.values()
    keys = ("name", "state", "title", "source", "missing")
    rows = [{key: getattr(published, key) for key in keys} for published in studies]
    lines = [table("l", "name = {name} | state = {state} | what = {title}", rows)]
    lines += [f"{published.name}: {published.missing}." for published in studies if published.missing]
    return Reproduction("\n\n".join(lines), {"rows": rows})


def _of_release(options: ReproduceOptions, published: PublishedStudy) -> tuple[str, Row]:
    """A study of released files, as text and as values."""
    release = read_release(published.release)
    findings = RELEASED[published.name](ReleasedFiles(release, options.data), options)
    values = {"commit": release.commit, "licence": release.licence, **findings.to_json()}
    page = f"What follows from these figures: docs/explanation/published/{published.name}.md"
    return f"{published.title}\ntheirs   {release.source}\n\n{findings.text()}\n\n{page}", values
