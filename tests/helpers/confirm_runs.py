"""A tiny pair of models, a trace of theirs, and confirmations on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tiny_models

from simlab.real_runner.confirm import confirm
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog, FinishedSequence
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import ConfirmSetup, load_setup
from simlab.real_runner.confirm.stop import StopMonitor
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.studies.confirm.confirmation import Confirmation
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import with_references
from simlab.traces.reader import Trace, open_trace

POLICIES = ("ddtree:budget=8",)
LABELS = ("autoregressive", "chain", "ddtree:budget=8")
MAX_NEW_TOKENS = 16

Ran = TypeVar("Ran")
"""What comes of a text, or of a group of texts."""


@dataclass(frozen=True, slots=True)
class Made:
    """Models in ``target`` and ``drafter``, prompts of two turns in ``prompts.jsonl``, a trace in ``trace``."""

    folder: Path

    @property
    def trace(self) -> Trace:
        return open_trace(self.folder / "trace")

    @property
    def models(self) -> tuple[str, ...]:
        return "--target", str(self.folder / "target"), "--draft", str(self.folder / "drafter")


def make(folder: Path, temperature: float = 0.0, num_prompts: int = 3) -> Made:
    """Everything, recorded in float32."""
    target, drafter = tiny_models.make_pair(folder)
    options = RecordOptions(
        str(target),
        str(drafter),
        out=folder / "trace",
        prompts=tiny_models.write_prompts(folder / "prompts.jsonl", num_prompts, num_turns=2),
        temperature=temperature,
        max_new_tokens=MAX_NEW_TOKENS,
    )
    record(options)
    return Made(folder)


def confirmed(made: Made, options: ConfirmOptions, policies: Sequence[str] = POLICIES) -> Confirmation:
    return run_confirmation(options, made.trace, with_references(policies))


def setup_of(made: Made, options: ConfirmOptions, policies: Sequence[str] = POLICIES) -> ConfirmSetup:
    return load_setup(options, made.trace, with_references(policies), made.trace.sequences())


def end_after_a_prompt(patch: pytest.MonkeyPatch) -> None:
    """Time is up as soon as one prompt is whole, however long that takes."""
    patch.setattr(StopMonitor, "_is_late", property(lambda monitor: monitor.num_whole > 0))


def log_of(made: Made, options: ConfirmOptions) -> list[FinishedSequence]:
    """What a confirmation left in its log."""
    setup = setup_of(made, options)
    return finished(ConfirmLog(options.out, setup.key(), resume=True))


class Watch:
    """Runs that note what they were asked for, and stop the confirmation after so many.

    Args:
        run: what a confirmation runs texts with.
        note: what is kept in `asked` of its arguments.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, run: Callable[..., Ran], note: Callable[..., Any], most: int | None = None
    ) -> None:
        self.asked: list[Any] = []

        def watched(*arguments: object) -> Ran:
            if len(self.asked) == most:
                raise KeyboardInterrupt
            self.asked.append(note(*arguments))
            return run(*arguments)

        patch.setattr(confirm, run.__name__, watched)


def spoilt(patch: pytest.MonkeyPatch, run: Callable[..., Ran], policy: str, change: Callable[[Ran], Ran]) -> None:
    """Let what comes of one policy be changed afterwards."""

    def faulty(*arguments: object) -> Ran:
        found = run(*arguments)
        return change(found) if repr(arguments[1]).startswith(policy) else found

    patch.setattr(confirm, run.__name__, faulty)
