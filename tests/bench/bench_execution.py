"""What a round takes eager and compiled: both pairs of models in one process, in turn, on the same prompts."""

import argparse
import time

import numpy as np
import torch
from torch._dynamo.utils import counters

from simlab.policies.parsing.parse import parse_policies
from simlab.policy import is_plain_decoding
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import clock_of
from simlab.real_runner.execution.executions import COMPILED, EAGER
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.drafter import PACKAGED
from simlab.real_runner.targets import builtin
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

GREEDY = Sampling(0.0, 0, 1.0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=builtin.NAME)
    parser.add_argument("--draft", default=PACKAGED)
    parser.add_argument("--policies", nargs="+", default=["ar", "chain", "ddtree:budget=16"])
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    clock = clock_of(torch.device(arguments.device))
    models = {}
    for execution in (EAGER, COMPILED):
        start = time.perf_counter()
        models[execution] = load_models(
            arguments.target, arguments.draft, arguments.dtype, arguments.device, execution=execution
        )
        print(f"{execution}: loaded in {time.perf_counter() - start:.1f} s")
    num_compiled = counters["stats"]["unique_graphs"]
    prompts = [sequence.prompt for sequence in open_trace(packaged_trace()).sequences()][: arguments.prompts]
    policies = parse_policies(arguments.policies)
    seconds: dict[tuple[str, str], list[float]] = {}
    texts: dict[tuple[str, str, str], list[int]] = {}
    for repeat in range(arguments.repeats + 1):
        order = list(models) if repeat % 2 else list(models)[::-1]
        for prompt in prompts:
            for policy in policies:
                for execution in order:
                    ran = decode(models[execution], policy.policy, prompt, GREEDY, arguments.tokens, clock)
                    texts[policy.label, execution, prompt.prompt_id] = ran.text.tolist()
                    if repeat:
                        own = [one.seconds.total_s for one in ran.rounds]
                        seconds.setdefault((policy.label, execution), []).extend(own)
    for policy in policies:
        eager, compiled = (1000 * np.median(seconds[policy.label, execution]) for execution in (EAGER, COMPILED))
        same = sum(
            texts[policy.label, EAGER, p.prompt_id] == texts[policy.label, COMPILED, p.prompt_id] for p in prompts
        )
        of = "token" if is_plain_decoding(policy.policy) else "round"
        print(
            f"{policy.label}: {eager:.2f} ms a {of} eager, {compiled:.2f} ms compiled ({compiled / eager:.2f}); "
            f"same text in {same} of {len(prompts)}"
        )
    print(f"{counters['stats']['unique_graphs'] - num_compiled} regions compiled after loading")


if __name__ == "__main__":
    main()
