"""The engines that simlab knows."""

from simlab.analysis.engines.answers import EngineError
from simlab.analysis.engines.engine import Engine
from simlab.analysis.engines.metrics import Samples
from simlab.analysis.engines.sglang import Sglang
from simlab.analysis.engines.trtllm import TensorRtLlm
from simlab.analysis.engines.vllm import Vllm

ENGINES: tuple[Engine, ...] = (Vllm(), Sglang(), TensorRtLlm())
"""All of them; a new one is added here."""


def engine_named(name: str) -> Engine:
    """The engine of that name."""
    for engine in ENGINES:
        if engine.name == name:
            return engine
    raise EngineError(f"no engine {name!r} is known; there are {', '.join(one.name for one in ENGINES)}")


def engine_of(samples: Samples) -> Engine | None:
    """The engine whose metrics these are; None: of none that is known."""
    return next((engine for engine in ENGINES if samples.has_prefix(engine.prefix)), None)
