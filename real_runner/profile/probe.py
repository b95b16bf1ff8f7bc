"""How fast a machine decodes right now, by a handful of tokens: to say beforehand how long something takes."""

import numpy as np

from simlab.draft import Prompt
from simlab.real_runner.decoding.plain import PlainDecoding
from simlab.real_runner.decoding.timer import clock_of
from simlab.real_runner.models import load_target_alone
from simlab.sampling.choice import Sampling

_TOKENS, _WARM_UP, _CONTEXT = 16, 4, 128


def plain_token_seconds(target: str, dtype: str, device: str) -> float:
    """Seconds of a token of plain decoding, the median of a few; a guide to durations and no measurement.

    Args:
        target: a name, folder or Hub id.
        dtype: of its arithmetic.
        device: as torch names it.
    """
    loaded = load_target_alone(target, dtype, device)
    prompt = Prompt("0", "probe", 0, 0, np.arange(_CONTEXT, dtype=np.int32) % loaded.vocab_size)
    greedy = Sampling(temperature=0.0, top_k=0, top_p=1.0, seed=0)
    text = PlainDecoding(loaded, prompt, greedy, _TOKENS + _WARM_UP + 2, clock_of(loaded.device))
    seconds = [text.step() for _ in range(_TOKENS + _WARM_UP)]
    return float(np.median(seconds[_WARM_UP:]))
