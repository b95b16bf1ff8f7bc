"""What decodes a text on these models: passes of just the right size, or captured ones of fixed sizes."""

from dataclasses import replace

from simlab.draft import Prompt
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.graph_plain import GraphPlainDecoding
from simlab.real_runner.decoding.graph_rounds import GraphSpeculation
from simlab.real_runner.decoding.plain import PlainDecoding
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.decoding.timer import Clock
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling

AnySpeculation = Speculation | GraphSpeculation
AnyPlainDecoding = PlainDecoding | GraphPlainDecoding


def with_own_graphs(models: Models) -> Models:
    """These models with captured passes and buffers of their own, where passes are captured: a text beside others."""
    if models.graphs is None:
        return models
    return replace(models, graphs=GraphedModels(models.target, models.block_drafter))


def speculation(
    models: Models, policy: AnyPolicy, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> AnySpeculation:
    """A text under a policy, its prompt read.

    Args:
        models: where they hold captured passes, these are used, and another text's are lost.
        policy: any but plain decoding.
        prompt: rendered; names the text's noise.
        sampling: how the target chooses.
        max_new_tokens: at least 1.
        clock: of the models' device; captured passes are timed by the device itself.
    """
    if models.graphs is None:
        return Speculation(models, policy, prompt, sampling, max_new_tokens, clock)
    return GraphSpeculation(models, models.graphs, policy, prompt, sampling, max_new_tokens)


def plain_decoding(
    models: Models, prompt: Prompt, sampling: Sampling, max_new_tokens: int, clock: Clock
) -> AnyPlainDecoding:
    """A text without a drafter, its prompt read; arguments and errors as for `speculation`."""
    if models.graphs is None:
        return PlainDecoding(models.target, prompt, sampling, max_new_tokens, clock, models.fixed_rows)
    return GraphPlainDecoding(models.target, models.graphs, prompt, sampling, max_new_tokens)
