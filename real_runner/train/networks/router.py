"""Training a router's network, ``simlab train router``: how many tokens a round by each route would bring.

Some texts are held out. They say which step is kept, and whether the state helps at all: beside the network stand the
same loss of each route's mean, and of what the entropy alone says.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from simlab.arrays import Longs
from simlab.channels.needs import channels_read
from simlab.errors import ModelError, PromptError, TraceError
from simlab.policies.engine.routed import RouteLayers, can_walk
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import some_rule
from simlab.policies.routing.routed_policy import RoutedPolicy, accepted_by, deepest_of
from simlab.real_runner.checkpoints.files import write_json, write_tensors, write_text
from simlab.real_runner.models import load_only_target
from simlab.real_runner.networks.router.config import RouterConfig
from simlab.real_runner.networks.router.network import RouterNetwork, inputs_along, save_router
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.hub_files import CONFIG, at_revision
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.model_card import plan_section, table
from simlab.real_runner.train.options import RouterOptions
from simlab.real_runner.train.setup import TRACKED_FILES, check_start, tracked_settings
from simlab.real_runner.train.text import claim
from simlab.real_runner.train.trainer import Trainer, note_evaluation, note_step
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.reader import Trace, open_trace
from simlab.tracking.tracker import Tracker, check_trackers, tracking

# What a router's network learns from: what it reads at the roots of recorded texts, and what each route brings there.
#
# Labels cost nothing: a recording says of every root how far the tree of any policy would have come.


@dataclass(frozen=True, slots=True, eq=False)
class RouterRoots:
    """Some roots of recorded texts.

    Attributes:
        inputs: float32 ``[R, H + 3]``, as `simlab.real_runner.networks.router.network.router_inputs` gives them.
        tokens: float32 ``[R, routes]``, that a round by each route adds, the bonus token among them.
        texts: int64 ``[R]``, the number of each one's text.
    """

    inputs: Tensor
    tokens: Tensor
    texts: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def entropies(self) -> Tensor:
        """float32 ``[R]``, of the laws that the roots were chosen from, nats."""
        return self.inputs[:, -3].contiguous()

    def of(self, mask: Tensor) -> "RouterRoots":
        """Some of these roots; ``mask`` is bool ``[R]``."""
        return RouterRoots(self.inputs[mask], self.tokens[mask], self.texts[mask])

    def drawn(self, num_texts: int, num_roots: int, draws: torch.Generator) -> Tensor:
        """Places of some roots of some texts, both drawn with replacement; int64 ``[num_texts x num_roots]``."""
        counts = self.texts.unique_consecutive(return_counts=True)[1]
        texts = torch.randint(len(counts), (num_texts,), generator=draws)
        shares = torch.rand(num_texts, num_roots, generator=draws)
        within = (shares * counts[texts, None]).long()
        indices: Tensor = (counts.cumsum(0) - counts)[texts, None] + within
        return indices.flatten()

    def split(self, share: float, seed: int) -> tuple["RouterRoots", "RouterRoots"]:
        """The roots that are learnt from and those of a share of the texts, at least one, that are held out."""
        texts = self.texts.unique()
        num = max(1, round(share * len(texts)))
        if num >= len(texts):
            raise PromptError(
                f"of {len(texts)} texts {num} would be held out, and none learnt from; give more texts or a smaller "
                "--held-out"
            )
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
        held_out = torch.isin(self.texts, texts[order[:num]])
        return self.of(~held_out), self.of(held_out)


def router_of(routes: Sequence[str]) -> RoutedPolicy:
    """The policies that are routes, together, as they are typed."""
    named = [parse_policies([route]) for route in routes]
    several = [route for route, policy in zip(routes, named, strict=True) if len(policy) != 1]
    if several:
        raise ValueError(f"the route {several[0]} makes several policies; name one")
    router = RoutedPolicy(tuple(policy[0].policy for policy in named), some_rule(len(routes)), label="|".join(routes))
    if not can_walk(router):
        raise ValueError(f"routes are simlab's own policies; got {'|'.join(routes)}")
    return router


def read_roots(
    traces: Sequence[Trace], router: RoutedPolicy, draft_set: str | None, target: Target, folder: Path
) -> RouterRoots:
    """All roots of some recordings whose rounds the end of their text cannot cut short.

    What the network reads is kept in the folder, a file for each recording, and read from there the next time.

    Args:
        traces: of one target and dtype.
        router: the routes.
        draft_set: whose candidates the routes read; None: the only one.
        target: which wrote the texts.
        folder: of the run.

    Raises:
        SimlabError: a recording does not hold what a route reads, or a file in the folder is damaged.
    """
    parts, num_texts = list[RouterRoots](), 0
    for trace in traces:
        tokens, texts, left, deepest = _labels(trace, router, trace.draft_name(draft_set))
        inputs = _inputs(trace, target, folder / f"inputs-{trace.text_id}.safetensors")
        of_trace = RouterRoots(inputs, torch.from_numpy(tokens).float(), torch.from_numpy(texts) + num_texts)
        parts.append(of_trace.of(torch.from_numpy(left > deepest)))
        num_texts += len(trace.texts)
    joined = RouterRoots(*(torch.cat([getattr(part, name) for part in parts]) for name in RouterRoots.__slots__))
    if not len(joined):
        raise PromptError("no text is longer than what its drafters look ahead, so there is nothing to learn from")
    return joined


def _labels(trace: Trace, router: RoutedPolicy, draft: str) -> tuple[Longs, Longs, Longs, int]:
    """What each route brings at each root, and of each root its text and how many tokens follow it.

    Returns:
        int64 ``[R, routes]``, ``[R]``, ``[R]``; how many tokens a round accepts at most.
    """
    check_needs(router, trace.holds(draft))
    tokens, texts, left, deepest, number = list[Longs](), list[Longs](), list[Longs](), 0, 0
    for part in trace.recorded_texts(draft, channels=channels_read([router])):
        trees = RouteLayers(part).trees(router.routes)
        tokens.append(1 + accepted_by(trees).T)
        deepest = max(deepest, deepest_of(trees))
        for sequence in part.sequences:
            num_roots = len(sequence.text) - 1
            texts.append(np.full(num_roots, number, np.int64))
            left.append(np.arange(num_roots, 0, -1, dtype=np.int64))
            number += 1
    return np.concatenate(tokens), np.concatenate(texts), np.concatenate(left), deepest


def _inputs(trace: Trace, target: Target, path: Path) -> Tensor:
    """What the network reads at every root of a recording, float32 ``[R, H + 3]``."""
    if not path.exists():
        texts = tqdm([record.recorded() for record in trace.texts], unit="text", desc="reading texts", disable=None)
        parts = [part for text in texts for part in _inputs_of_text(text, target)]
        write_tensors(path, {"inputs": torch.cat(parts)}, ("format", "pt"))
    try:
        return load_file(path)["inputs"]
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(f"{path} cannot be read ({error}); delete it, and it is made again") from error


@torch.inference_mode()
def _inputs_of_text(recorded: RecordedSequence, target: Target) -> Iterator[Tensor]:
    ids = np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64)
    states = forward_text(target, torch.from_numpy(ids).to(target.device), ())[1]
    return (part.cpu() for part in inputs_along(target, states, len(recorded.text) - 1))


_NOTE = "source.json"
_BINS = 16
"""Parts of equal numbers of roots in which the entropy alone says the mean of each."""


def train_router(options: RouterOptions) -> Path:
    """Train a router's network; its checkpoint, card and curve are in the folder.

    Args:
        options: of the run.

    Raises:
        SimlabError: traces, target or folder cannot be used.
        ValueError: routes cannot be routes of one router.
    """
    check_trackers(options.track)
    with exclusive_lock(options.out / CONFIG):
        check_start(options.out, (), options.device, options.resume)
        if (options.out / _NOTE).exists() and not options.resume:
            raise ModelError(
                f"{options.out} holds a training run; add --resume to go on with it, or choose another --out"
            )
        router, traces = router_of(options.routes), [open_trace(location) for location in options.traces]
        target = _target_of(options, traces)
        source = {"target": target.digest, "dtype": str(target.dtype)}
        claim(options.out, _NOTE, source, "a run on another target, or of another dtype")
        roots = read_roots(traces, router, options.draft_set, target, options.out)
        learnt, held_out = roots.split(options.held_out, options.plan.seed)
        config = RouterConfig(target.config.hidden_size, options.routes, target.digest, options.inner_size)
        read = {"text_ids": [trace.text_id for trace in traces]}
        with tracking(options.track, "train router", lambda: tracked_settings(options, target, read)) as tracker:
            network, curve = trained(config, learnt, held_out, options, tracker)
            save_router(network, options.out)
            # Held-out losses: Huber, with a bend at one token, the mean over roots and routes.
            constants, entropy = plain_losses(learnt, held_out)
            scores = {"network": min(point["held_out"] for point in curve), "constants": constants, "entropy": entropy}
            write_json(options.out / "curve.json", {"scores": scores, "curve": curve})
            write_text(options.out / "README.md", _card(options, target, traces, (learnt, held_out), curve, scores))
            tracker.results({"held_out": scores})
            tracker.files(*(options.out / name for name in TRACKED_FILES))
    return options.out


def _target_of(options: RouterOptions, traces: list[Trace]) -> Target:
    """The target that wrote the texts of all traces."""
    first = traces[0].manifest
    named = options.target or at_revision(first.target.name, first.target.revision)
    target = load_only_target(named, first.dtype, options.device)
    for trace in traces:
        manifest = trace.manifest
        if (manifest.target.digest, manifest.dtype) != (target.digest, first.dtype):
            raise TraceError(
                f"the texts of {trace.location} are of the target {manifest.target.name} (digest "
                f"{manifest.target.digest[:12]}, {manifest.dtype}), and {named} has the digest {target.digest[:12]} "
                f"({first.dtype}); give that target with --target, or traces of one target"
            )
    return target


def trained(
    config: RouterConfig, learnt: RouterRoots, held_out: RouterRoots, options: RouterOptions, tracker: Tracker
) -> tuple[RouterNetwork, list[dict[str, Any]]]:
    """The network with the weights of its best step, and its curve.

    A point of the curve has the ``step``, the ``loss``, the mean over the steps since the point before, None before the
    first step, and the loss on texts ``held_out``.

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
        rows = learnt.drawn(plan.num_sequences, plan.num_roots, draws)
        return functional.huber_loss(network(learnt.inputs[rows]), learnt.tokens[rows])

    trainer = Trainer(network, loss_at, plan, {})
    curve: list[dict[str, Any]] = [{"step": 0, "loss": None, "held_out": _held_out(network, held_out)}]
    best, since = copy.deepcopy(network.state_dict()), 0
    with tqdm(total=plan.steps, unit="step", desc="training", disable=None) as bar:
        while trainer.step < plan.steps and not 0 < options.patience <= since:
            until = min(plan.steps, trainer.step + options.eval_every)
            loss = trainer.run(until, lambda loss: note_step(loss, trainer, bar, tracker))
            point = {"step": trainer.step, "loss": round(loss, 6), "held_out": _held_out(network, held_out)}
            since += 1
            if point["held_out"] < min(point["held_out"] for point in curve):
                best, since = copy.deepcopy(network.state_dict()), 0
            curve.append(point)
            bar.set_postfix(held_out=point["held_out"])
            note_evaluation({"held_out": point["held_out"]}, trainer, tracker)
    network.load_state_dict(best)
    return network.eval(), curve


@torch.no_grad()
def _held_out(network: RouterNetwork, held_out: RouterRoots) -> float:
    return round(float(functional.huber_loss(network(held_out.inputs), held_out.tokens)), 6)


def plain_losses(learnt: RouterRoots, held_out: RouterRoots) -> tuple[float, float]:
    """The held-out losses of each route's mean, and of the means of parts of the roots by their entropy."""
    means = learnt.tokens.mean(dim=0).expand_as(held_out.tokens)
    cuts = learnt.entropies.quantile(torch.linspace(0, 1, _BINS + 1)[1:-1])
    bins, wanted = (torch.bucketize(roots.entropies, cuts) for roots in (learnt, held_out))
    by_entropy = torch.stack(
        [learnt.tokens[bins == index].mean(dim=0) if (bins == index).any() else means[0] for index in range(_BINS)]
    )
    losses = functional.huber_loss(means, held_out.tokens), functional.huber_loss(by_entropy[wanted], held_out.tokens)
    return round(float(losses[0]), 6), round(float(losses[1]), 6)


def _card(
    options: RouterOptions,
    target: Target,
    traces: list[Trace],
    roots: tuple[RouterRoots, RouterRoots],
    curve: list[dict[str, Any]],
    scores: Mapping[str, float],
) -> str:
    """What the folder says of the network."""
    learnt, held_out = roots
    best = min(curve, key=lambda point: point["held_out"])
    routes = [
        (route, f"{learnt.tokens[:, index].mean():.3f}", f"{held_out.tokens[:, index].mean():.3f}")
        for index, route in enumerate(options.routes)
    ]
    plan = {**asdict(options.plan), "inner size": options.inner_size}
    plan |= {"held out": options.held_out, "patience": options.patience}
    names = ", ".join(dict.fromkeys(text.prompt.dataset for trace in traces for text in trace.texts))
    losses = [("each route's mean", scores["constants"]), ("the entropy alone", scores["entropy"])]
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
        table(("what says it", "Huber loss"), [*losses, (f"the network, step {best['step']}", scores["network"])]),
        "## Curve",
        table(
            ("step", "loss", "held-out loss"),
            [(point["step"], point["loss"] or "", point["held_out"]) for point in curve],
        ),
    ]
    return "\n\n".join(parts) + "\n"
