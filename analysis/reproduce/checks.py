"""Is a trace of what a published figure is of? Each thing that must be equal, theirs and ours."""

from collections.abc import Iterable
from dataclasses import dataclass

from simlab.analysis.reproduce.published import PublishedSetup, PublishedStudy
from simlab.analysis.table.summaries import Scalar
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet

EQUAL, DIFFERS, NOT_KNOWN, ON_PURPOSE = "equal", "differs", "not known", "on purpose"


@dataclass(frozen=True, slots=True)
class SetupCheck:
    """One thing that must be equal.

    Attributes:
        state: ``equal``, ``differs``, ``not known``, or ``on purpose`` where ours is meant to be another.
    """

    what: str
    theirs: str
    ours: str
    state: str

    def row(self) -> dict[str, Scalar]:
        """The check as flat scalars, as a script reads them."""
        return {"what": self.what, "theirs": self.theirs, "ours": self.ours, "state": self.state}


def checks_of_trace(
    published: PublishedStudy, manifest: Manifest, draft: str, datasets: Iterable[str], num_prompts: int
) -> list[SetupCheck]:
    """What must be equal, read from the manifest of a trace; then what no manifest shows.

    Args:
        published: with a setup.
        manifest: of the trace.
        draft: the draft set.
        datasets: those of its prompts.
        num_prompts: turns and samples of one count once.

    Raises:
        ValueError: the published figure is of no trace.
    """
    setup = published.setup
    if setup is None:
        raise ValueError(f"{published.name} is of no trace")
    kept = manifest.draft_sets[draft]
    found = [
        *_models(setup, manifest, kept),
        *_text(setup, manifest),
        *_prompts(setup, sorted(set(datasets)), num_prompts),
    ]
    found += [SetupCheck(what, theirs, "-", NOT_KNOWN) for what, theirs in published.not_known.items()]
    return found + [SetupCheck(what, theirs, ours, ON_PURPOSE) for what, (theirs, ours) in published.on_purpose.items()]


def _models(setup: PublishedSetup, manifest: Manifest, kept: DraftSet) -> list[SetupCheck]:
    return [
        _named("target", setup.target, manifest.target.name),
        _named("drafter", setup.drafter, kept.model.name),
        _check("block", setup.block_size, kept.block_size),
        _check("dtype", setup.dtype, manifest.dtype),
    ]


def _text(setup: PublishedSetup, manifest: Manifest) -> list[SetupCheck]:
    thinking = manifest.chat_template_kwargs.get("enable_thinking")
    shown = {True: "on", False: "off"}
    ours = shown.get(thinking, "not set") if isinstance(thinking, bool) else "not set"
    return [
        _check("temperature", f"{setup.temperature:g}", f"{manifest.sampling.temperature:g}"),
        _check("thinking", shown[setup.thinking], ours),
        _check("text", "generated", manifest.gt_mode),
        _check("new tokens, at most", setup.max_new_tokens, manifest.max_new_tokens),
    ]


def _prompts(setup: PublishedSetup, datasets: list[str], num_prompts: int) -> list[SetupCheck]:
    return [
        _check("dataset", setup.dataset, ", ".join(datasets)),
        _check("number of prompts", setup.num_prompts, num_prompts),
    ]


def _named(what: str, theirs: str, ours: str) -> SetupCheck:
    """Names of models by their last part, since a folder holds what a hub does."""
    last = ours.rstrip("/").rsplit("/", 1)[-1]
    return SetupCheck(what, theirs, ours, EQUAL if last.lower() == theirs.lower() else DIFFERS)


def _check(what: str, theirs: object, ours: object) -> SetupCheck:
    if theirs is None:
        return SetupCheck(what, "not said", str(ours), NOT_KNOWN)
    return SetupCheck(what, str(theirs), str(ours), EQUAL if theirs == ours else DIFFERS)
