"""The engines that simlab knows, and what is asked of each: how it is recognised, asked and read.

An engine more is one module and one line. Nothing here reaches a network; `simlab.studies.engines.collect` does.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from simlab.analysis.engines.answers import EngineAnswer, EngineError, Json, ServerCounters, ServerFacts
from simlab.analysis.engines.metrics import Samples
from simlab.analysis.engines.sglang import Sglang
from simlab.analysis.engines.trtllm import TensorRtLlm
from simlab.analysis.engines.vllm import LlamaCpp, Vllm


class Counted(Protocol):
    """A serving engine whose metrics are read."""

    name: ClassVar[str]
    """As it is typed behind ``--engine``."""

    title: ClassVar[str]
    """As its makers write it."""

    prefix: ClassVar[str]
    """With which all names of its metrics begin."""

    def facts(self, responses: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What the server tells of itself.

        Args:
            responses: the answers of `fact_paths` that are there, by path.
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

    busy: ClassVar[tuple[str, str]]
    """The gauges of requests that run, and that wait."""

    def request(self, prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int], model: str) -> Json:
        """The body of a request for one text, decoded greedily, with everything told that the engine can tell.

        Args:
            prompt: token ids.
            max_tokens: that may be written.
            stop_token_ids: that end the text.
            model: the name under which the target is served.
        """
        ...

    def answer(self, response: Json, where: str) -> EngineAnswer:
        """Read what came back of a request.

        Raises:
            EngineError: it is no such answer.
        """
        ...


ENGINES: tuple[Engine, ...] = (Vllm(), Sglang(), TensorRtLlm())
"""All that are asked for texts; a new one is added here."""

COUNTED: tuple[Counted, ...] = (*ENGINES, LlamaCpp())
"""All whose metrics are read."""


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    for engine in ENGINES:
        if engine.name == name:
            return engine
    raise EngineError(f"no engine {name!r} is known; there are {', '.join(engine.name for engine in ENGINES)}")


def engine_of(samples: Samples) -> Counted | None:
    """The engine whose metrics these are; None: of none that is known.

    Raises:
        EngineError: they are of several engines, or of several served models.
    """
    engines = [engine for engine in COUNTED if any(name.startswith(engine.prefix) for name in samples.by_name)]
    if len(engines) > 1:
        titles = " and ".join(engine.title for engine in engines)
        raise EngineError(f"{samples.where} has metrics of {titles}; keep the lines of one engine")
    for engine in engines:
        samples.model(engine.prefix)
    return engines[0] if engines else None
