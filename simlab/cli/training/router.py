"""``simlab train router``: what chooses among the policies of a router."""

import argparse
from pathlib import Path

from simlab.cli.model_options import add_device
from simlab.cli.options import add_track
from simlab.cli.parser import Parser, positive
from simlab.cli.training.fits import Kind
from simlab.cli.training.plan import add_network_plan, finished, plan_of
from simlab.errors import at_the_door, needing_models
from simlab.real_runner.train.options import LossWeights, RouterOptions, TrainingPlan

_PLAN = TrainingPlan(
    steps=2000, num_sequences=32, num_roots=16, learning_rate=1e-3, warmup_steps=20, weight_decay=0.1, head_tokens=0
)

_DETAILS = """A router's network (after WhiFlash, arXiv 2606.07710) says of each root, before anything is drafted, how
many tokens a round by each route would bring: from the target's last state at the token before the root,
how sure it was, and the position. It learns from recordings of training prompts that hold all that the routes
read; what each route brings at every root stands there already.

  simlab record --prompts train.jsonl --out runs/train
  simlab record --trace runs/train --add-channel eagle3=eagle3-smollm2-135m,steps=7
  simlab train router --trace runs/train --routes "ddtree:budget=16|eagle3:budget=16,steps=3" --out runs/router
  simlab record --trace runs/mine --add-channel router=runs/router
  simlab replay --trace runs/mine -p 'router:routes="ddtree:budget=16|eagle3:budget=16,steps=3",by=network'

Some texts are held out: the checkpoint has the weights of the step at which the loss on them was lowest.
README.md in the folder says that loss beside those of each route's mean and of the entropy alone. What the
target says along the texts is kept in the folder; --resume goes on with it after an interruption."""


def _add(parser: Parser) -> None:
    said = "a recording of training prompts; repeats"
    parser.add_argument("--trace", type=str, action="append", required=True, metavar="DIR", help=said)
    said = "policies as they are typed, with | between them"
    parser.add_argument("--routes", required=True, metavar="P|P", help=said)
    parser.add_argument("--target", metavar="T", help="a Hugging Face id or a folder (default: as the trace names it)")
    parser.add_argument("--draft-set", metavar="NAME", help="whose candidates the routes read (default: the only one)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    add_device(parser)
    add_track(parser)
    said = "between the matrices of the network (default 128)"
    parser.add_argument("--inner-size", type=positive, default=128, metavar="N", help=said)
    plan = parser.add_argument_group("plan")
    add_network_plan(plan, _PLAN, eval_every=20, patience=10, held_out=0.2)
    parser.set_defaults(head_tokens=0)


def _run(options: argparse.Namespace) -> int:
    """Train a router's network, and say where it is."""
    with needing_models("train"):
        from simlab.real_runner.train.networks.router import train_router  # noqa: PLC0415 - loads torch
    names = ("target", "draft_set", "out", "inner_size", "held_out", "patience", "eval_every", "resume", "device")
    with at_the_door():
        chosen = RouterOptions(
            traces=tuple(options.trace),
            routes=tuple(one.strip() for one in options.routes.split("|")),
            track=tuple(options.track),
            plan=plan_of(options, LossWeights(0.0, focal=0.0, chain=0.0), options.weight_decay),
            **{name: getattr(options, name) for name in names},
        )
        return finished(chosen.out, lambda: f"The network is in {train_router(chosen)}")


ROUTER = Kind("Train what chooses among the policies of a router.", _DETAILS, _add, _run)
