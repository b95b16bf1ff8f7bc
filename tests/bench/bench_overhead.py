"""What a round costs beside the two models: its seconds less those of the drafter's and of the target's forward pass.

The drafter's pass is all of drafting: layers, head, log-softmax and the first candidates of each depth. The target's
is its layers and its head. What is left is choosing the tree, its mask and positions, following it, and moving keys
and values. Of captured passes the device says how long the two take (`--execution cuda_graphs`, on a GPU).
"""

import argparse
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from simlab.policies.parsing.parse import parse_policies
from simlab.real_runner.checkpoints.files import PACKAGED
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.decoding.text_runners import speculation
from simlab.real_runner.decoding.timer import clock_of
from simlab.real_runner.execution.executions import EAGER, EXECUTIONS
from simlab.real_runner.models import load_models
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

GREEDY = Sampling(0.0, 0, 1.0, 0)
BUDGETS = (16, 32, 64, 128, 256)

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--execution", choices=EXECUTIONS, default=EAGER)
    arguments = parser.parse_args()
    models = load_models(builtin.NAME, PACKAGED, arguments.dtype, arguments.device, execution=arguments.execution)
    clock, spent, verifying = clock_of(torch.device(arguments.device)), [0.0], [False]

    def timed(method: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        @wraps(method)
        def measured(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            start = clock()
            value = method(*args, **kwargs)
            # The drafter borrows the target's head, and that is drafting.
            spent[0] += clock() - start if verifying[0] else 0.0
            return value

        return measured

    def verify(method: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        @wraps(method)
        def watched(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            verifying[0] = True
            value = method(*args, **kwargs)
            verifying[0] = False
            return value

        return watched

    if models.graphs is None:
        Speculation._verify = verify(Speculation._verify)  # type: ignore[method-assign]
        Target.states, Target.logits = timed(Target.states), timed(Target.logits)  # type: ignore[method-assign]
    prompts = [one.prompt for one in open_trace(packaged_trace()).sequences()][: arguments.prompts]
    for policy in parse_policies([f"ddtree:budget={'/'.join(map(str, BUDGETS))}"]):
        total = draft = select = commit = target = 0.0
        rounds = 0
        for number, prompt in enumerate([prompts[0], *prompts]):
            running = speculation(models, policy.policy, prompt, GREEDY, arguments.tokens, clock)
            spent[0] = 0.0
            own = []
            while not running.ended:
                own.append(running.round().seconds)
            if not number:
                continue
            total += sum(one.total_s for one in own)
            draft += sum(one.draft_s for one in own)
            select += sum(one.select_s for one in own)
            commit += sum(one.commit_s for one in own)
            target += spent[0] if models.graphs is None else sum(one.verify_s for one in own)
            rounds += len(own)
        beside = total - draft - target
        print(
            f"{policy.label:18} {1e3 * total / rounds:6.1f} ms a round: {100 * draft / total:4.1f} % drafter, "
            f"{100 * target / total:4.1f} % target, {100 * beside / total:4.1f} % beside "
            f"(select {100 * select / total:.1f}, commit {100 * commit / total:.1f})"
        )
    how = f"{arguments.dtype}, {arguments.execution}, {torch.get_num_threads()} threads"
    print(f"{len(prompts)} prompts of {arguments.tokens} tokens, {how}")


if __name__ == "__main__":
    main()
