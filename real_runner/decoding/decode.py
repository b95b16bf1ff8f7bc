"""One text under one policy, from prompt to end: plain decoding or speculation."""

import time
from collections.abc import Callable

from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.errors import MissingChannelError, ModelError
from simlab.policy import AnyPolicy, is_plain_decoding
from simlab.real_runner.attention.batch_invariant import check_rows
from simlab.real_runner.decoding.decoded import DecodedRound, DecodedText
from simlab.real_runner.decoding.drafting import depth_of
from simlab.real_runner.decoding.plain import Clock, plain_decoding
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import Round
from simlab.tree import DraftTree


def no_check() -> None:
    """Let a text go on."""


def decode(
    models: Models,
    policy: AnyPolicy,
    prompt: Prompt,
    sampling: Sampling,
    max_new_tokens: int,
    clock: Clock = time.perf_counter,
    check: Callable[[], None] = no_check,
) -> DecodedText:
    """Decode a text until its first stop token or ``max_new_tokens``, round by round, timed.

    The text does not depend on the policy, up to ties of the target within the precision of its dtype; where rows are
    fixed (`Models.fixed_rows`) it does not at all.

    Args:
        models: a target, a drafter that fits it, and what makes the channels that the policy reads.
        policy: any; one that drafts nothing and needs no drafter runs as plain decoding.
        prompt: rendered; names the text's noise.
        sampling: how the target chooses.
        max_new_tokens: at least 1.
        clock: see `simlab.real_runner.decoding.plain`.
        check: called before each round, outside of its time; what it raises ends the text.
    """
    check_runs(models, policy, prompt, max_new_tokens)
    if is_plain_decoding(policy):
        return _plainly(models, prompt, sampling, max_new_tokens, clock, check)
    running = Speculation(models, policy, sampling, max_new_tokens, clock)
    text = running.add(prompt)
    while not text.ended:
        check()
        running.round()
    return text.decoded()


def check_runs(models: Models, policy: AnyPolicy, prompt: Prompt, max_new_tokens: int) -> None:
    """Refuse before the work what cannot be run."""
    positions, depth = models.target.longest_context, depth_of(models, policy)
    if models.fixed_rows:
        check_rows(policy, models.fixed_rows, depth)
    _check_masks(models, policy)
    # Masks stand behind the deepest node too.
    depth += models.drafter.config.num_masks
    needed = len(prompt.token_ids) + max_new_tokens + depth
    if needed > positions:
        raise ModelError(
            f"prompt {prompt.prompt_id!r} has {len(prompt.token_ids)} tokens; with {max_new_tokens} new ones and a "
            f"draft of {depth} it needs {needed} positions, and {models.target.reach}; take shorter "
            "prompts or fewer new tokens"
        )


def _check_masks(models: Models, policy: AnyPolicy) -> None:
    is_adapted = models.drafter.config.num_masks > 0
    if policy.needs.masked is not None and not is_adapted:
        raise MissingChannelError(
            f"{policy!r} says which nodes carry masks, and the drafter here is no adapter of the target; give one, or "
            "leave `masked` out"
        )
    if is_adapted and models.fixed_rows and policy.needs.draft:
        raise ModelError(
            "passes of a fixed shape have no rows for the masks of a target that drafts for itself; leave "
            "--batch-invariant out"
        )


def _plainly(
    models: Models, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock, check: Callable[[], None]
) -> DecodedText:
    running = plain_decoding(models, prompt, sampling, max_new_tokens, clock)
    text, seconds = running.text, list[float]()
    while not text.ended:
        check()
        seconds.append(running.step())
    for t, (root, step_s) in enumerate(zip(text.text.tolist(), seconds, strict=False)):
        ran = Round(t, DraftTree.root_only(root), (), 1, clipped=False)
        text.rounds.append(DecodedRound(ran, None, StageSeconds(verify_s=step_s)))
    return text.decoded()
