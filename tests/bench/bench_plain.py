"""Is plain decoding, the baseline of every speedup, on its fastest path?

One text, greedy, by our own loop and by transformers' `generate` with its growing and with its static
cache, in turn in one process. The fastest of them must be ours.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--dtype", default="bfloat16")
    arguments = parser.parse_args()
    target = load_target(builtin.NAME, dtype_of(arguments.dtype))
    place = str(builtin.builtin_target_dir())
    library = AutoModelForCausalLM.from_pretrained(place, dtype=dtype_of(arguments.dtype), attn_implementation="sdpa")
    assert target.model.config._attn_implementation == OURS
    prompt = target.tokenizer.encode("A chain of tokens is drafted, and a tree of them is verified. " * 20)[:200]
    paths: dict[str, Callable[[], float]] = {
        "simlab": lambda: ours(target, prompt, arguments.tokens),
        "transformers, growing cache": lambda: theirs(library, prompt, arguments.tokens, None),
        "transformers, static cache": lambda: theirs(library, prompt, arguments.tokens, "static"),
    }
    found: dict[str, list[float]] = {name: [] for name in paths}
    for repeat in range(arguments.repeats + 1):
        for name, path in paths.items():
            seconds = path()
            if repeat:
                found[name].append(seconds)
    for name, all_s in found.items():
        ratio = statistics.median(value / own for value, own in zip(all_s, found["simlab"], strict=True))
        shown = f"{1e3 * statistics.median(all_s):.1f} ms a token ({1e3 * min(all_s):.1f} to {1e3 * max(all_s):.1f})"
        print(f"{name:28} {shown}, {ratio:.2f} of ours")
    print(
        f"{arguments.repeats} runs of {arguments.tokens} tokens after {len(prompt)}, {arguments.dtype}, "
        f"{torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
