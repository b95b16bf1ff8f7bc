"""What is asked of every engine: how it is recognised, asked and read. An engine more is one module and one line.

Nothing here reaches a network; `simlab.studies.engines.collect` does.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from simlab.analysis.engines.answers import EngineAnswer, Json, Question, ServerCounters, ServerFacts, ServerLoad
from simlab.analysis.engines.metrics import Samples


class Counted(Protocol):
    """A serving engine whose metrics are read."""

    name: ClassVar[str]
    """As it is typed behind ``--engine``."""

    title: ClassVar[str]
    """As its makers write it."""

    prefix: ClassVar[str]
    """With which all names of its metrics begin."""

    def facts(self, told: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What the server tells of itself.

        Args:
            told: the answers of `fact_paths` that are there, by path.
            samples: of its metrics; None: it shows none.
        """
        ...

    def counters(self, samples: Samples) -> ServerCounters:
        """The server's counts since its start."""
        ...


class Engine(Counted, Protocol):
    """A serving engine's words: it is asked for texts too."""

    metrics_path: ClassVar[str]
    """Where its metrics are."""

    fact_paths: ClassVar[tuple[str, ...]]
    """What tells of the server; an address that is not there is left out."""

    answer_path: ClassVar[str]
    """Where requests are sent."""

    per_round: ClassVar[str]
    """How to start the server so that it tells each round; empty: it cannot."""

    def load(self, samples: Samples) -> ServerLoad:
        """What it is busy with."""
        ...

    def request(self, question: Question) -> Json:
        """The body of a request for one text, decoded greedily, with everything told that the engine can tell."""
        ...

    def answer(self, told: Json, where: str) -> EngineAnswer:
        """Read what came back of a request.

        Raises:
            EngineError: it is no such answer.
        """
        ...
