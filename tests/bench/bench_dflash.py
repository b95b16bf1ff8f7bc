"""Is our runner as fast as the authors' own, on the same models and prompts? Needs PyPI dflash 0.1.0, as the tests do.

The chain by `dflash.model.dflash_generate` and by our runner, and a tree of eight in our runner, in turn in one
process, greedy; prefill is left out on both sides. Theirs runs transformers' attention and its growing cache.
After the first prompt, which warms up, each has a line with the ratio so far; ``--seconds`` are counted from there.
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from simlab.draft import Prompt
from simlab.policies.named.chain import Chain
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.execution.executions import EAGER, EXECUTIONS
from simlab.real_runner.models import Models, dtype_of, load_models
from simlab.real_runner.networks.drafter import PACKAGED, find_drafter
from simlab.real_runner.targets import builtin
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

# Without types: what it declares is narrower than what it takes.
released: Any = importlib.import_module("dflash.model")

GREEDY = Sampling(0.0, 0, 1.0, 0)


def theirs(models: tuple[Any, Any], prompt: Prompt, num_tokens: int, stop: list[int]) -> tuple[float, list[int]]:
    """Seconds a token, and the text."""
    drafter, target = models
    ids = torch.from_numpy(prompt.token_ids.astype(np.int64))[None].to(target.device)
    found = released.dflash_generate(drafter, target, ids, num_tokens, stop, return_stats=True)
    text = found.output_ids[0, found.num_input_tokens :].tolist()
    return found.time_per_output_token * found.num_output_tokens / max(len(text) - 1, 1), text


def ours(models: Models, policy: AnyPolicy, prompt: Prompt, num_tokens: int) -> tuple[float, list[int]]:
    """Seconds a token, and the text."""
    found = decode(models, policy, prompt, GREEDY, num_tokens, clock_of(models.target.device))
    text = found.text.tolist()
    return sum(one.seconds.total_s for one in found.rounds) / max(len(text) - 1, 1), text


def median_ratio(values: list[float], others: list[float]) -> float:
    return statistics.median(value / other for value, other in zip(values, others, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=30.0, help="end after the prompt during which these are over")
    parser.add_argument("--execution", choices=EXECUTIONS, default=EAGER, help="of ours")
    arguments = parser.parse_args()
    dtype = dtype_of(arguments.dtype)
    if arguments.device == "cpu":
        # Their clock asks CUDA to finish, also where there is none.
        released._cuda_time = time.perf_counter
    models = load_models(builtin.NAME, PACKAGED, arguments.dtype, arguments.device, execution=arguments.execution)
    target: Any = AutoModelForCausalLM.from_pretrained(str(builtin.builtin_target_dir()), dtype=dtype)
    drafter = released.DFlashDraftModel.from_pretrained(find_drafter(PACKAGED).folder, dtype=dtype)
    pair = (drafter.eval().to(arguments.device), target.eval().to(arguments.device))
    prompts = [sequence.prompt for sequence in open_trace(packaged_trace()).sequences()][: arguments.prompts]
    stop = list(models.target.stop_token_ids)
    (tree,) = parse_policies(["ddtree:budget=8"])
    paths: dict[str, Callable[[Prompt], tuple[float, list[int]]]] = {
        "simlab, chain": lambda prompt: ours(models, Chain(), prompt, arguments.tokens),
        "dflash 0.1.0, chain": lambda prompt: theirs(pair, prompt, arguments.tokens, stop),
        "simlab, ddtree:budget=8": lambda prompt: ours(models, tree.policy, prompt, arguments.tokens),
    }
    found: dict[str, list[float]] = {name: [] for name in paths}
    alike, ends = 0, 0.0
    for number, prompt in enumerate([prompts[0], *prompts]):
        order = list(paths.items())
        texts = {}
        for name, path in order if number % 2 else order[::-1]:
            seconds, texts[name] = path(prompt)
            if number:
                found[name].append(seconds)
        if not number:
            print("warmed up", flush=True)
            ends = time.perf_counter() + arguments.seconds
            continue
        alike += len({tuple(text) for text in texts.values()}) == 1
        ratio = median_ratio(found["dflash 0.1.0, chain"], found["simlab, chain"])
        print(f"prompt {number} of {len(prompts)}: dflash's chain {ratio:.2f} of simlab's", flush=True)
        if time.perf_counter() >= ends:
            break
    for name, all_s in found.items():
        ratio = median_ratio(all_s, found["simlab, chain"])
        print(f"{name:26} {1e3 * statistics.median(all_s):.1f} ms a token, {ratio:.2f} of simlab's chain")
    num = len(found["simlab, chain"])
    print(
        f"{num} prompts, up to {arguments.tokens} tokens, {arguments.dtype}, {arguments.device}, "
        f"ours {arguments.execution}, {torch.get_num_threads()} threads; texts alike in {alike} of {num}"
    )


if __name__ == "__main__":
    main()
