"""Figures that are worked out again from files that others released."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from simlab.analysis.released.adixg.pass_prices import adixg_cost
from simlab.analysis.released.adixg.records import FILES as ADIXG_FILES
from simlab.analysis.released.adixg.records import read_served
from simlab.analysis.released.compared import Findings
from simlab.analysis.released.domino.caddtree import domino_caddtree
from simlab.analysis.released.domino.gsm8k import PublishedElsewhere, domino_gsm8k
from simlab.analysis.released.domino.lossless import domino_lossless
from simlab.analysis.released.domino.rounds import domino_rounds
from simlab.analysis.released.eliran_online import FILES as ELIRAN_FILES
from simlab.analysis.released.eliran_online import eliran_online
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.released.specdecode.study import specdecode_bench
from simlab.analysis.reproduce.published import DDTREE_GSM8K, ZLAB_166, PublishedStudy
from simlab.analysis.reproduce.text import missing_text
from simlab.errors import UsageError
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.wrong_prices import wrong_prices

_CHAIN_MEASURES = {"acceptance_length": "pooled", "acceptance_length_macro": "macro", "speedup": "speedup"}

_ELSEWHERE = tuple(
    PublishedElsewhere(source, "dflash", _CHAIN_MEASURES[one.measure], one.value)
    for source, study in (("issue #166 of z-lab/dflash", ZLAB_166), ("DDTree, arXiv 2604.12989", DDTREE_GSM8K))
    for one in study.figures
    if one.policy == "chain"
)
"""What others print of DFlash with Qwen3-8B on GSM8K."""


def _adixg_cost(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their fit and their rounds, and what a wrong price costs by our replay."""
    files.have(ADIXG_FILES, options.progress)
    found, wrong = adixg_cost(files), wrong_prices(read_served(files), options)
    return replace(
        found,
        follows=f"{found.follows} {wrong.follows()}",
        tables=(*found.tables, wrong.text()),
        values={**found.values, **wrong.values()},
    )


def _eliran_online(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    files.have(ELIRAN_FILES, options.progress)
    return eliran_online(files)


RELEASED: Mapping[str, Callable[[ReleasedFiles, ReproduceOptions], Findings]] = {
    "domino-rounds": lambda files, options: domino_rounds(files, options.progress),
    "domino-gsm8k": lambda files, _options: domino_gsm8k(files, _ELSEWHERE),
    "domino-caddtree": lambda files, options: domino_caddtree(files, options.progress),
    "domino-lossless": lambda files, options: domino_lossless(files, options.progress),
    "specdecode-bench": lambda files, options: specdecode_bench(files, options.progress),
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
    if one.missing and options.data is None:
        refusal = UsageError(missing_text(one))
        for command in (*release.commands, f"simlab study reproduce {one.name} --data {release.folder}"):
            refusal.add_note(command)
        raise refusal
    found = RELEASED[one.name](ReleasedFiles(release, options.data), options)
    heading = f"{one.title}\ntheirs   {release.source}"
    return f"{heading}\n\n{found.text()}", {"commit": release.commit, "licence": release.licence, **found.to_json()}
