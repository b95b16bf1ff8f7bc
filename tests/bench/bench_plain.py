"""Is plain decoding, the baseline of every speedup, on its fastest path?

One text, greedy, by our own loop and by transformers' `generate` with its growing and with its static
cache, in turn in one process. The fastest of them must be ours.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from in_turn import asked_for, compared
from transformers import AutoModelForCausalLM

from simlab.draft import Prompt
from simlab.real_runner.attention.grouped import NAME as OURS
from simlab.real_runner.decoding.plain import PlainDecoding
from simlab.real_runner.models import dtype_of
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling


def ours(target: Target, prompt: list[int], num_tokens: int) -> float:
    """Seconds a token of our loop, prefill left out."""
    asked = Prompt("bench", "bench", 0, 0, np.array(prompt, np.int32))
    running = PlainDecoding(target, asked, Sampling(0, 0, 1, 0), num_tokens, time.perf_counter)
    return sum(running.step() for _ in range(num_tokens - 1)) / (num_tokens - 1)


def theirs(model: torch.nn.Module, prompt: list[int], num_tokens: int, cache: str | None) -> float:
    """Seconds a token of `generate`: those of the whole less those of one token, so that prefill is left out."""
    generate: Callable[..., object] = model.generate  # type: ignore[assignment]
    ids = torch.tensor([prompt])
    settings = {"attention_mask": torch.ones_like(ids), "do_sample": False, "cache_implementation": cache}
    seconds = []
    for count in (1, num_tokens):
        start = time.perf_counter()
        with torch.inference_mode():
            generate(ids, min_new_tokens=count, max_new_tokens=count, disable_compile=True, **settings)
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) / (num_tokens - 1)


def main() -> None:
    asked = asked_for(__doc__, repeats=5, tokens=96, dtype="bfloat16")
    dtype, place = dtype_of(asked.dtype), str(builtin.builtin_target_dir())
    target = load_target(builtin.NAME, dtype)
    library = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, attn_implementation="sdpa")
    assert target.model.config._attn_implementation == OURS
    prompt = target.tokenizer.encode("A chain of tokens is drafted, and a tree of them is verified. " * 20)[:200]
    works = {
        "simlab": lambda: ours(target, prompt, asked.tokens),
        "transformers, growing cache": lambda: theirs(library, prompt, asked.tokens, None),
        "transformers, static cache": lambda: theirs(library, prompt, asked.tokens, "static"),
    }
    compared(works, asked.repeats, unit="ms a token", wanted="none faster than simlab")
    print(f"{asked.tokens} tokens after {len(prompt)}, {asked.dtype}, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
