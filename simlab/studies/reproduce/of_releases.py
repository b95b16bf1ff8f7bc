"""Figures that are worked out again from files that others released."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from simlab.analysis.released.adixg_cost import adixg_cost
from simlab.analysis.released.adixg_files import FILES, read_served
from simlab.analysis.released.compared import Findings
from simlab.analysis.released.eliran_online import FILES as ROUND_FILES
from simlab.analysis.released.eliran_online import eliran_online
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.reproduce.published import PUBLISHED, PublishedStudy
from simlab.analysis.reproduce.text import missing_text
from simlab.errors import UsageError
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.wrong_prices import wrong_prices


def _adixg_cost(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their fit and their rounds, and what a wrong price costs by our replay."""
    files.have(FILES, options.progress)
    found, wrong = adixg_cost(files), wrong_prices(read_served(files), options)
    return replace(
        found,
        follows=f"{found.follows} {wrong.follows()}",
        tables=(*found.tables, wrong.text()),
        values={**found.values, **wrong.values()},
    )


def _eliran_online(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their rounds, which nobody here has seen: how long the files are is not known, so they are not fetched."""
    if files.place is None:
        refusal = UsageError(missing_text(PUBLISHED["eliran-online"]))
        for command in (*files.release.commands, "simlab reproduce eliran-online --data ddtree"):
            refusal.add_note(command)
        raise refusal
    files.have(ROUND_FILES, options.progress)
    return eliran_online(files)


RELEASED: Mapping[str, Callable[[ReleasedFiles, ReproduceOptions], Findings]] = {
    "adixg-cost": _adixg_cost,
    "eliran-online": _eliran_online,
}
"""What is worked out from released files, by the name under which it is asked for."""


def of_release(options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    """A study of released files, as text and as values.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    release = read_release(one.release)
    found = RELEASED[one.name](ReleasedFiles(release, options.data), options)
    heading = f"{one.title}\ntheirs   {release.source}"
    return f"{heading}\n\n{found.text()}", {"commit": release.commit, "licence": release.licence, **found.to_json()}
