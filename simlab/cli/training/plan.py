"""The plan of a training run as it is typed, and what is said at its end."""

import argparse
from collections.abc import Callable
from pathlib import Path

from simlab.cli.interruption import keep
from simlab.cli.options import Options
from simlab.cli.parser import not_negative, positive, seed
from simlab.real_runner.train.options import LossWeights, TrainingPlan


def add_network_plan(
    plan: Options, defaults: TrainingPlan, eval_every: int = 25, patience: int = 5, held_out: float = 0.1
) -> None:
    """Add the plan, and when it ends early."""
    add_plan(plan, defaults, eval_every)
    said = f"of AdamW (default {defaults.weight_decay:g})"
    plan.add_argument("--weight-decay", type=float, default=defaults.weight_decay, metavar="X", help=said)
    said = f"of the texts, not learnt from (default {held_out:g})"
    plan.add_argument("--held-out", type=float, default=held_out, metavar="SHARE", help=said)
    plan.add_argument(
        "--patience",
        type=not_negative,
        default=patience,
        metavar="N",
        help=f"evaluations in a row without a better held-out loss that end the run; 0: none (default {patience})",
    )


def add_plan(group: Options, usual: TrainingPlan, eval_every: int) -> None:
    """Add steps, what a step draws, and how the learning rate goes."""
    numbers = (
        ("--steps", usual.steps, "optimiser steps in all"),
        ("--sequences", usual.num_sequences, "texts in a step"),
        ("--roots", usual.num_roots, "random blocks in each of them"),
    )
    for option, default, what in numbers:
        group.add_argument(option, type=positive, default=default, metavar="N", help=f"{what} (default {default})")
    group.add_argument(
        "--learning-rate",
        type=float,
        default=usual.learning_rate,
        metavar="X",
        help=f"at its highest (default {usual.learning_rate:g})",
    )
    group.add_argument(
        "--warmup-steps",
        type=not_negative,
        default=usual.warmup_steps,
        metavar="N",
        help=f"steps of rising learning rate (default {usual.warmup_steps})",
    )
    if usual.head_tokens:
        group.add_argument(
            "--head-tokens",
            type=not_negative,
            default=usual.head_tokens,
            metavar="N",
            help=f"commonest tokens that the loss is taken over; 0: all (default {usual.head_tokens})",
        )
    group.add_argument(
        "--seed",
        type=seed,
        default=0,
        metavar="N",
        help="of the order of texts, of the random blocks and of sampling (default 0)",
    )
    group.add_argument(
        "--eval-every",
        type=positive,
        default=eval_every,
        metavar="N",
        help=f"steps between evaluations; each saves (default {eval_every})",
    )


def plan_of(options: argparse.Namespace, loss: LossWeights, weight_decay: float) -> TrainingPlan:
    """The plan that was typed."""
    return TrainingPlan(
        steps=options.steps,
        seed=options.seed,
        num_sequences=options.sequences,
        num_roots=options.roots,
        learning_rate=options.learning_rate,
        warmup_steps=options.warmup_steps,
        weight_decay=weight_decay,
        head_tokens=options.head_tokens,
        loss=loss,
    )


def finished(out: Path, trained: Callable[[], str]) -> int:
    """Train, and say where the result is; an interruption says how to go on."""
    keep(f"the same command with --resume goes on with {out}")
    print(trained())
    return 0
