"""Several texts at a time under one policy, from prompts to ends, in a batch that empties behind the last prompt."""

import time
from collections import deque
from collections.abc import Sequence

from simlab.draft import Prompt
from simlab.policies.composition import check_batch, check_runs_together
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.drafting import check_passes
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling


def decode_batch(
    models: Models,
    policy: AnyPolicy,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    max_new_tokens: int,
    batch: int,
    clock: Clock = time.perf_counter,
) -> list[DecodedText]:
    """Decode texts, ``batch`` of them at a time; when one ends, the next prompt takes its place."""
    check_batch(policy, batch)
    check_runs_together(policy, batch)
    check_passes(policy, models.execution, batch)
    for prompt in prompts:
        check_runs(models, policy, prompt, max_new_tokens)
    longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
    served = Speculation(models, policy, sampling, max_new_tokens, clock, batch, longest)
    waiting, decoded = deque(prompts), dict[int, DecodedText]()
    while waiting or served.running:
        while waiting and served.has_place:
            served.add(waiting.popleft())
        decoded |= {one.number: one.decoded() for one in served.take_ended()}
        if served.running and not (waiting and served.has_place):
            served.round()
    return [decoded[number] for number in sorted(decoded)]
