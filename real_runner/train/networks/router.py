"""Training a router's network, ``simlab train router``: how many tokens a round by each route would bring.

Some texts are held out. They say which step is kept, and whether the state helps at all: beside the network stand the
same loss of each route's mean, and of what the entropy alone says.
"""

import copy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from simlab.errors import ModelError, TraceError
from simlab.real_runner.checkpoints.files import write_json, write_text
from simlab.real_runner.checkpoints.networks.router_files import save_router
from simlab.real_runner.heads.router.config import RouterConfig
from simlab.real_runner.heads.router.network import RouterNetwork
from simlab.real_runner.models import load_target_alone
from simlab.real_runner.targets.hub_files import CONFIG, at_revision
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.model_card import plan_section, table
from simlab.real_runner.train.networks.router_roots import RouterRoots, read_roots, router_of
from simlab.real_runner.train.options import RouterOptions
from simlab.real_runner.train.setup import TRACKED_FILES, check_start, tracked_settings
from simlab.real_runner.train.text import claim
from simlab.real_runner.train.trainer import Trainer, note_evaluation, note_step
from simlab.traces.format.alone import writing_alone
from simlab.traces.reader import Trace, open_trace
from simlab.tracking.tracker import Tracker, check_trackers, tracking

_NOTE = "source.json"
_BINS = 16
"""Parts of equal numbers of roots in which the entropy alone says the mean of each."""


@dataclass(frozen=True, slots=True)
class RouterPoint:
    """The run at one step.

    Attributes:
        step: of it.
        loss: mean over the steps since the point before; None before the first step.
        held_out: the loss on held-out texts.
    """

    step: int
    loss: float | None
    held_out: float


@dataclass(frozen=True, slots=True)
class RouterScores:
    """Held-out losses: Huber, with a bend at one token, the mean over roots and routes.

    Attributes:
        network: of the step that is kept.
        constants: of each route's mean over the texts that are learnt from.
        entropy: of the means of parts of these roots, by the entropy of their laws.
    """

    network: float
    constants: float
    entropy: float


def train_router(options: RouterOptions) -> Path:
    """Train a router's network; its checkpoint, card and curve are in the folder.

    Args:
        options: of the run.

    Raises:
        SimlabError: traces, target or folder cannot be used.
        ValueError: routes cannot be routes of one router.
    """
    check_trackers(options.track)
    with writing_alone(options.out / CONFIG):
        check_start(options.out, (), options.device, options.resume)
        if (options.out / _NOTE).exists() and not options.resume:
            raise ModelError(
                f"{options.out} holds a training run; add --resume to go on with it, or choose another --out"
            )
        router, traces = router_of(options.routes), [open_trace(place) for place in options.traces]
        target = _target_of(options, traces)
        source = {"target": target.digest, "dtype": str(target.dtype)}
        claim(options.out, _NOTE, source, "a run on another target, or of another dtype")
        roots = read_roots(traces, router, options.draft_set, target, options.out)
        learnt, held_out = roots.split(options.held_out, options.plan.seed)
        config = RouterConfig(target.config.hidden_size, options.routes, target.digest, options.inner_size)
        read = {"text_ids": [one.text_id for one in traces]}
        with tracking(options.track, "train router", lambda: tracked_settings(options, target, read)) as tracker:
            network, curve = trained(config, learnt, held_out, options, tracker)
            save_router(network, options.out)
            scores = RouterScores(min(one.held_out for one in curve), *plain_losses(learnt, held_out))
            write_json(options.out / "curve.json", {"scores": asdict(scores), "curve": [asdict(one) for one in curve]})
            write_text(options.out / "README.md", _card(options, target, traces, (learnt, held_out), curve, scores))
            tracker.results({"held_out": asdict(scores)})
            tracker.files(*(options.out / name for name in TRACKED_FILES))
    return options.out


def _target_of(options: RouterOptions, traces: list[Trace]) -> Target:
    """The target that wrote the texts of all traces."""
    first = traces[0].manifest
    named = options.target or at_revision(first.target.name, first.target.revision)
    target = load_target_alone(named, first.dtype, options.device)
    for trace in traces:
        manifest = trace.manifest
        if (manifest.target.digest, manifest.dtype) != (target.digest, first.dtype):
            raise TraceError(
                f"the texts of {trace.place} are of the target {manifest.target.name} (digest "
                f"{manifest.target.digest[:12]}, {manifest.dtype}), and {named} has the digest {target.digest[:12]} "
                f"({first.dtype}); give that target with --target, or traces of one target"
            )
    return target


def trained(
    config: RouterConfig, learnt: RouterRoots, held_out: RouterRoots, options: RouterOptions, tracker: Tracker
) -> tuple[RouterNetwork, list[RouterPoint]]:
    """The network with the weights of its best step, and its curve.

    Args:
        config: of it.
        learnt: from which it learns.
        held_out: by which the step is chosen.
        options: plan, patience and evaluations.
        tracker: gets the losses.

    Raises:
        ModelError: the loss is no longer a finite number.
    """
    plan = options.plan
    torch.manual_seed(plan.seed)
    network = RouterNetwork(config)
    draws = torch.Generator().manual_seed(plan.seed)

    def loss_at(step: int) -> Tensor:
        which = learnt.drawn(plan.num_sequences, plan.num_roots, draws)
        return huber(network(learnt.inputs[which]), learnt.tokens[which])

    trainer = Trainer(network, loss_at, plan, {})
    curve = [RouterPoint(0, None, _held_out(network, held_out))]
    best, since = copy.deepcopy(network.state_dict()), 0
    with tqdm(total=plan.steps, unit="step", desc="training") as bar:
        while trainer.step < plan.steps and not 0 < options.patience <= since:
            until = min(plan.steps, trainer.step + options.eval_every)
            loss = trainer.run(until, lambda loss: note_step(loss, trainer, bar, tracker))
            point = RouterPoint(trainer.step, round(loss, 6), _held_out(network, held_out))
            since += 1
            if point.held_out < min(one.held_out for one in curve):
                best, since = copy.deepcopy(network.state_dict()), 0
            curve.append(point)
            bar.set_postfix(held_out=point.held_out)
            note_evaluation({"held_out": point.held_out}, trainer, tracker)
    network.load_state_dict(best)
    return network.eval(), curve


def huber(said: Tensor, tokens: Tensor) -> Tensor:
    """The mean loss over roots and routes, a scalar: half the square of what is missed up to a token, then linear."""
    return functional.huber_loss(said, tokens)


@torch.no_grad()
def _held_out(network: RouterNetwork, held_out: RouterRoots) -> float:
    return round(float(huber(network(held_out.inputs), held_out.tokens)), 6)


def plain_losses(learnt: RouterRoots, held_out: RouterRoots) -> tuple[float, float]:
    """The held-out losses of each route's mean, and of the means of parts of the roots by their entropy."""
    means = learnt.tokens.mean(dim=0).expand_as(held_out.tokens)
    cuts = learnt.entropies.quantile(torch.linspace(0, 1, _BINS + 1)[1:-1])
    bins, wanted = (torch.bucketize(one.entropies, cuts) for one in (learnt, held_out))
    by_entropy = torch.stack(
        [learnt.tokens[bins == place].mean(dim=0) if (bins == place).any() else means[0] for place in range(_BINS)]
    )
    losses = huber(means, held_out.tokens), huber(by_entropy[wanted], held_out.tokens)
    return round(float(losses[0]), 6), round(float(losses[1]), 6)


def _card(
    options: RouterOptions,
    target: Target,
    traces: list[Trace],
    roots: tuple[RouterRoots, RouterRoots],
    curve: list[RouterPoint],
    scores: RouterScores,
) -> str:
    """What the folder says of the network."""
    learnt, held_out = roots
    kept = min(curve, key=lambda one: one.held_out)
    routes = [
        (route, f"{learnt.tokens[:, place].mean():.3f}", f"{held_out.tokens[:, place].mean():.3f}")
        for place, route in enumerate(options.routes)
    ]
    plan = {**asdict(options.plan), "inner size": options.inner_size}
    plan |= {"held out": options.held_out, "patience": options.patience}
    names = ", ".join(dict.fromkeys(one.prompt.dataset for trace in traces for one in trace.texts))
    losses = [("each route's mean", scores.constants), ("the entropy alone", scores.entropy)]
    what = (
        "A router's network (after WhiFlash 2026, arXiv 2606.07710, which published none; a reconstruction) for the "
        f"target `{target.name}`, trained with `simlab train router`. It says, before anything is drafted, how many "
        "tokens a round by each route would add, from the target's last state at the token before the root, the "
        "entropy and the top gap of its law there, and the position."
    )
    data = (
        f"{len(learnt):,} roots of {len(learnt.texts.unique()):,} texts ({names}), and {len(held_out):,} roots of "
        f"{len(held_out.texts.unique()):,} texts held out."
    )
    parts = [
        f"# {options.out.resolve().name}",
        what,
        "## Routes",
        table(("route", "tokens a round, mean of the roots learnt from", "of those held out"), routes),
        "## Data",
        data,
        plan_section("random weights", plan),
        "## Held-out loss",
        table(("what says it", "Huber loss"), [*losses, (f"the network, step {kept.step}", scores.network)]),
        "## Curve",
        table(("step", "loss", "held-out loss"), [(one.step, one.loss or "", one.held_out) for one in curve]),
    ]
    return "\n\n".join(parts) + "\n"
