"""Is our runner as fast as the authors' own, on the same models and prompts? Needs PyPI dflash 0.1.0, as the tests do.

The chain by `dflash.model.dflash_generate` and by our runner, and a tree of eight in our runner, in turn in one
process, greedy; prefill is left out on both sides. Theirs runs transformers' attention and its growing cache.
No other prompt is begun when ``--seconds`` are over, counted from the first, which warms up.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from in_turn import asked_for, compared
from transformers import AutoModelForCausalLM

from simlab.draft import Prompt
from simlab.policies.named.chain import Chain
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.execution.executions import EAGER
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
    answer = released.dflash_generate(drafter, target, ids, num_tokens, stop, return_stats=True)
    text = answer.output_ids[0, answer.num_input_tokens :].tolist()
    return answer.time_per_output_token * answer.num_output_tokens / max(len(text) - 1, 1), text


def ours(models: Models, policy: AnyPolicy, prompt: Prompt, num_tokens: int) -> tuple[float, list[int]]:
    """Seconds a token, and the text."""
    ran = decode(models, policy, prompt, GREEDY, num_tokens, clock_of(models.target.device))
    text = ran.text.tolist()
    return sum(each.seconds.total_s for each in ran.rounds) / max(len(text) - 1, 1), text


def main() -> None:
    asked = asked_for(__doc__, prompts=8, tokens=96, dtype="float32", device="cpu", seconds=30.0, execution=EAGER)
    dtype = dtype_of(asked.dtype)
    if asked.device == "cpu":
        # Their clock asks CUDA to finish, also where there is none.
        released._cuda_time = time.perf_counter
    models = load_models(builtin.NAME, PACKAGED, asked.dtype, asked.device, execution=asked.execution)
    target: Any = AutoModelForCausalLM.from_pretrained(str(builtin.builtin_target_dir()), dtype=dtype)
    drafter = released.DFlashDraftModel.from_pretrained(find_drafter(PACKAGED).folder, dtype=dtype)
    pair = (drafter.eval().to(asked.device), target.eval().to(asked.device))
    prompts = [sequence.prompt for sequence in open_trace(packaged_trace()).sequences()][: asked.prompts]
    stop = list(models.target.stop_token_ids)
    (tree,) = parse_policies(["ddtree:budget=8"])
    texts: dict[str, list[list[int]]] = {}

    def by_prompt(name: str, decoded: Callable[[Prompt], tuple[float, list[int]]]) -> Callable[[], float]:
        """A work that takes the next prompt each time; the first warms up."""
        texts[name], waiting = [], iter([prompts[0], *prompts])

        def run() -> float:
            seconds, text = decoded(next(waiting))
            texts[name].append(text)
            return seconds

        return run

    paths: dict[str, Callable[[Prompt], tuple[float, list[int]]]] = {
        "simlab, chain": lambda prompt: ours(models, Chain(), prompt, asked.tokens),
        "dflash 0.1.0, chain": lambda prompt: theirs(pair, prompt, asked.tokens, stop),
        "simlab, ddtree:budget=8": lambda prompt: ours(models, tree.policy, prompt, asked.tokens),
    }
    works = {name: by_prompt(name, decoded) for name, decoded in paths.items()}
    compared(works, len(prompts), unit="ms a token", most_seconds=asked.seconds)
    alike = [all(text == others[0] for text in others) for others in zip(*texts.values(), strict=True)]
    print(
        f"a run is a prompt of up to {asked.tokens} tokens, {asked.dtype}, {asked.device}, ours {asked.execution}, "
        f"{torch.get_num_threads()} threads; texts alike in {sum(alike[1:])} of {len(alike) - 1}"
    )


if __name__ == "__main__":
    main()
