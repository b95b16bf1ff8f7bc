"""Figures that are worked out again from files that others released."""

from collections.abc import Callable, Mapping

from simlab.analysis.released.compared import Findings
from simlab.analysis.released.domino_caddtree import domino_caddtree
from simlab.analysis.released.domino_lossless import domino_lossless
from simlab.analysis.released.domino_rounds import domino_rounds
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.released.specdecode_bench import specdecode_bench
from simlab.analysis.reproduce.published import PublishedStudy
from simlab.analysis.released.domino_gsm8k import PublishedElsewhere, domino_gsm8k
from simlab.analysis.released.domino_rounds import domino_rounds
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.reproduce.published import DDTREE_GSM8K, ZLAB_166, PublishedStudy
from simlab.studies.reproduce.options import ReproduceOptions

_ELSEWHERE = tuple(
    PublishedElsewhere(source, "dflash", measure, one.value)
    for source, study in (("z-lab/dflash #166", ZLAB_166), ("DDTree, arXiv 2604.12989", DDTREE_GSM8K))
    for one in study.figures
    for policy, named, measure in (
        ("chain", "acceptance_length", "pooled"),
        ("chain", "acceptance_length_macro", "macro"),
        ("chain", "speedup", "speedup"),
    )
    if (one.policy, one.measure) == (policy, named)
)
"""What others print of DFlash with Qwen3-8B on GSM8K."""

RELEASED: Mapping[str, Callable[[ReleasedFiles, ReproduceOptions], Findings]] = {
    "specdecode-bench": lambda files, options: specdecode_bench(files, options.progress),
    "domino-rounds": lambda files, options: domino_rounds(files, options.progress),
    "domino-gsm8k": lambda files, _options: domino_gsm8k(files, _ELSEWHERE),
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
