"""Several texts at a time under one policy, from prompts to ends."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.policies.composition import check_batch, check_runs_together
from simlab.policy import AnyPolicy, is_plain_decoding
from simlab.real_runner.decoding.batched_speculation import BatchedSpeculation
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.decoded import DecodedRound, DecodedText, RunningText
from simlab.real_runner.decoding.drafting import check_passes
from simlab.real_runner.decoding.timer import Clock
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
    """Decode texts, ``batch`` of them at a time; when one ends, the next prompt takes its place.

    Each text, and each of its rounds, is as `simlab.real_runner.decoding.decode.decode` has it, up to ties of the
    target within the precision of its dtype; under a policy of the batch the text is, and rounds depend on the texts
    beside it. A round's seconds are those of the whole batch; plain decoding has them all in ``verify_s``.

    Args:
        models: a target and a drafter that fits it.
        policy: any that `decode` takes, or one of the batch.
        prompts: rendered; each names its text's noise.
        sampling: how the target chooses.
        max_new_tokens: of each text, at least 1.
        batch: texts at a time, at least 1.
        clock: see `simlab.real_runner.decoding.timer`.

    Returns:
        In the order of the prompts.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1; got {batch}")
    check_batch(policy, batch)
    check_runs_together(policy, batch)
    check_passes(policy, models.execution, batch)
    for prompt in prompts:
        check_runs(models, policy, prompt, max_new_tokens)
    longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
    served = BatchedSpeculation(models, policy, sampling, max_new_tokens, clock, batch, longest)
    waiting, decoded = deque(prompts), dict[int, DecodedText]()
    while waiting or served.running:
        while waiting and served.has_place:
            served.add(waiting.popleft())
        for one in served.take_ended():
            decoded[one.number] = decoded_of(models, policy, one)
        if served.running and not (waiting and served.has_place):
            served.round()
    return [decoded[number] for number in sorted(decoded)]


def decoded_of(models: Models, policy: AnyPolicy, text: RunningText) -> DecodedText:
    """A text that was served, as far as it came; plain decoding's seconds are all those of verifying."""
    stop_reason = "stop" if text.root in models.target.stop_token_ids else "length"
    rounds = [_plain(ran) for ran in text.rounds] if is_plain_decoding(policy) else text.rounds
    return DecodedText(text.prompt, text.text, stop_reason, tuple(rounds))


def _plain(ran: DecodedRound) -> DecodedRound:
    return replace(ran, seconds=StageSeconds(verify_s=ran.seconds.total_s))
