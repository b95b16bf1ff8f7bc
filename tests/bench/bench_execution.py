"""What a round takes eager and compiled: both pairs of models in one process, in turn, on the same prompts."""

import time

import numpy as np
import torch
from in_turn import Work, asked_for, compared
from torch._dynamo.utils import counters

from simlab.draft import Prompt
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.execution.executions import COMPILED, EAGER
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.networks.drafter import PACKAGED
from simlab.real_runner.targets import builtin
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

GREEDY = Sampling(0.0, 0, 1.0, 0)


def rounds(models: Models, policy: AnyPolicy, prompts: list[Prompt], tokens: int, texts: set[tuple[int, ...]]) -> Work:
    """Decodes all prompts; gives back the median seconds of a round, and adds the texts to others."""

    def run() -> float:
        clock = clock_of(models.target.device)
        ran = [decode(models, policy, prompt, GREEDY, tokens, clock) for prompt in prompts]
        texts.update((number, *one.text.tolist()) for number, one in enumerate(ran))
        return float(np.median([each.seconds.total_s for one in ran for each in one.rounds]))

    return run


def main() -> None:
    asked = asked_for(__doc__, target=builtin.NAME, draft=PACKAGED, policies=("ar", "chain", "ddtree:budget=16"),
                      prompts=3, repeats=3, tokens=48, dtype="bfloat16", device="cpu", threads=0)  # fmt: skip
    if asked.threads:
        torch.set_num_threads(asked.threads)
    models = {}
    for execution in (EAGER, COMPILED):
        start = time.perf_counter()
        models[execution] = load_models(asked.target, asked.draft, asked.dtype, asked.device, execution=execution)
        print(f"{execution}: loaded in {time.perf_counter() - start:.1f} s")
    num_compiled = counters["stats"]["unique_graphs"]
    prompts = [sequence.prompt for sequence in open_trace(packaged_trace()).sequences()][: asked.prompts]
    for policy in parse_policies(asked.policies):
        texts = set[tuple[int, ...]]()
        works = {
            f"{policy.label}, {name}": rounds(models[name], policy.policy, prompts, asked.tokens, texts)
            for name in models
        }
        compared(works, asked.repeats, unit="ms a round")
        print(f"{len(texts)} texts of {len(prompts)} prompts: as many where all are alike")
    print(f"{counters['stats']['unique_graphs'] - num_compiled} regions compiled after loading")


if __name__ == "__main__":
    main()
