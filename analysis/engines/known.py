"""The engines that simlab knows."""

from simlab.analysis.engines.answers import EngineError
from simlab.analysis.engines.engine import Counted, Engine
from simlab.analysis.engines.metrics import Samples
from simlab.analysis.engines.sglang import Sglang
from simlab.analysis.engines.trtllm import TensorRtLlm
from simlab.analysis.engines.vllm import LlamaCpp, Vllm

ENGINES: tuple[Engine, ...] = (Vllm(), Sglang(), TensorRtLlm())
"""All that are asked for texts; a new one is added here."""

COUNTED: tuple[Counted, ...] = (*ENGINES, LlamaCpp())
"""All whose metrics are read."""


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    for engine in ENGINES:
        if engine.name == name:
            return engine
    raise EngineError(f"no engine {name!r} is known; there are {', '.join(one.name for one in ENGINES)}")


def engine_of(samples: Samples) -> Counted | None:
    """The engine whose metrics these are; None: of none that is known.

    Raises:
        EngineError: they are of several engines, or of several served models.
    """
    engines = [engine for engine in COUNTED if samples.has_prefix(engine.prefix)]
    if len(engines) > 1:
        titles = " and ".join(engine.title for engine in engines)
        raise EngineError(f"{samples.where} has metrics of {titles}; keep the lines of one engine")
    for engine in engines:
        samples.model(engine.prefix)
    return engines[0] if engines else None
