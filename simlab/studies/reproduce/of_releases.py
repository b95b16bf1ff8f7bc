"""Figures that are worked out again from files that others released."""

from collections.abc import Callable, Mapping

from simlab.analysis.released.compared import Findings
from simlab.analysis.released.domino_caddtree import domino_caddtree
from simlab.analysis.released.domino_lossless import domino_lossless
from simlab.analysis.released.domino_rounds import domino_rounds
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.released.specdecode_bench import specdecode_bench
from simlab.analysis.reproduce.published import PublishedStudy
from simlab.studies.reproduce.options import ReproduceOptions

RELEASED: Mapping[str, Callable[[ReleasedFiles, ReproduceOptions], Findings]] = {
    "specdecode-bench": lambda files, options: specdecode_bench(files, options.progress),
    "domino-rounds": lambda files, options: domino_rounds(files, options.progress),
    "domino-caddtree": lambda files, options: domino_caddtree(files, options.progress),
    "domino-lossless": lambda files, options: domino_lossless(files, options.progress),
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
