"""``simlab train``: a drafter for a target, from text or from the target's own answers."""

import argparse
import sys
from pathlib import Path

from simlab.cli.parser import Parser, add_command, not_negative, positive
from simlab.errors import UsageError, at_the_door, needing_models
from simlab.studies import fit_ngram as command_train_ngram
from simlab.studies import fit_tables as command_train_tables

_DETAILS = """The text is a Parquet table of token ids (columns prompt_ids, text_ids), a JSONL file of prompts
with their answers, or, with --prompts, what the target itself answers.

  simlab train dflash --prompts prompts.jsonl --dev dev.jsonl --steps 5000 --out runs/drafter
  simlab train dflash --text text.parquet --init dflash-smollm2-135m --steps 5000 --out runs/longer

The run's folder holds the drafter (config.json, model.safetensors, README.md), its curve, and what
is needed to go on after an interruption: the same command with --resume continues from the last
evaluation, and ends with the same drafter as a run that was never interrupted. The text's hidden
states are kept there too: taps x hidden size x 2 bytes a token. They can be deleted afterwards.

--init FOLDER begins a new run, with its own schedule, where another ended: with the float32 weights
and the optimiser's moments of FOLDER/state.safetensors where there is one, else with the weights of
model.safetensors and a new optimiser. It says on stderr which."""


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to the list."""
    parser = add_command(commands, "train", "Train a drafter for a target.")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    dflash = add_command(kinds, "dflash", "Train a block-diffusion drafter.", _DETAILS)
    dflash.add_argument(
        "--target",
        default="smollm2-135m",
        metavar="T",
        help="the model to draft for: a Hugging Face id, a folder, or smollm2-135m (default)",
    )
    source = dflash.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="text to learn from: .parquet or .jsonl")
    source.add_argument("--prompts", type=Path, metavar="FILE", help="prompts that the target answers first")
    dflash.add_argument(
        "--dev", type=Path, action="append", default=[], metavar="FILE", help="prompts to score on; repeats"
    )
    dflash.add_argument(
        "--dev-limit", type=positive, default=48, metavar="N", help="prompts of each --dev (default 48)"
    )
    dflash.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the run")
    dflash.add_argument("--resume", action="store_true", help="go on with the run in --out")
    dflash.add_argument("--limit", type=positive, metavar="N", help="the first N texts only")
    dflash.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda, cuda:1, ... (default cpu)")
    _add_text(dflash.add_argument_group("text"))
    _add_sizes(dflash.add_argument_group("drafter"))
    _add_plan(dflash.add_argument_group("plan"))
    _add_loss(dflash.add_argument_group("loss"))
    dflash.set_defaults(run=_run)
    command_train_tables.add_parsers(kinds)
    command_train_ngram.add_parser(kinds)


def _add_text(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--temperature", type=float, default=0.0, metavar="X", help="of generated text (default 0)")
    group.add_argument(
        "--max-new-tokens", type=positive, default=256, metavar="N", help="of a generated answer (default 256)"
    )
    group.add_argument(
        "--chat-template-kwargs", default="{}", metavar="JSON", help="such as '{\"enable_thinking\": false}'"
    )
    group.add_argument(
        "--max-tokens", type=positive, default=640, metavar="N", help="longer texts are cut (default 640)"
    )


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--init",
        default="target",
        metavar="FROM",
        help="target (its last layers), random, or a drafter's name or folder (default target)",
    )
    group.add_argument("--block-size", type=positive, metavar="N", help="root included (default 8)")
    group.add_argument("--layers", type=positive, metavar="N", help="draft layers (default 2)")
    group.add_argument("--taps", metavar="I,J,...", help="target layers whose states are read (default: five, spread)")
    group.add_argument(
        "--mask-token", metavar="TEXT", help="a token of the target (default: one that no text contains)"
    )


def _add_plan(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--steps", type=positive, default=5000, metavar="N", help="optimiser steps in all (default 5000)"
    )
    group.add_argument("--sequences", type=positive, default=4, metavar="N", help="texts in a step (default 4)")
    group.add_argument(
        "--roots", type=positive, default=32, metavar="N", help="random blocks in each of them (default 32)"
    )
    group.add_argument("--learning-rate", type=float, default=1e-3, metavar="X", help="at its highest (default 1e-3)")
    group.add_argument(
        "--warmup-steps",
        type=not_negative,
        default=100,
        metavar="N",
        help="steps of rising learning rate (default 100)",
    )
    group.add_argument(
        "--head-tokens",
        type=not_negative,
        default=8192,
        metavar="N",
        help="commonest tokens that the loss is taken over; 0: all (default 8192)",
    )
    group.add_argument(
        "--seed",
        type=not_negative,
        default=0,
        metavar="N",
        help="of the order of texts, of the random blocks and of sampling (default 0)",
    )
    group.add_argument(
        "--eval-every",
        type=positive,
        default=500,
        metavar="N",
        help="steps between evaluations; each saves (default 500)",
    )


def _add_loss(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--decay",
        type=float,
        default=4.0,
        metavar="X",
        help="depths over which a position's weight falls by e; 0: none (default 4)",
    )
    group.add_argument(
        "--focal", type=float, default=0.3, metavar="X", help="extra weight of the first error (default 0.3)"
    )
    group.add_argument(
        "--chain-reward", type=float, default=1.0, metavar="X", help="reward per expected accepted token (default 1)"
    )


def _run(options: argparse.Namespace) -> int:
    taps = _taps(options.taps)
    with needing_models("train"):
        from simlab.real_runner.record.options import parse_template_kwargs
        from simlab.real_runner.train.options import LossWeights, TrainingPlan
        from simlab.real_runner.train.train import TrainOptions, train
    with at_the_door():
        chosen = TrainOptions(
            target=options.target,
            out=options.out,
            plan=TrainingPlan(
                steps=options.steps,
                seed=options.seed,
                num_sequences=options.sequences,
                num_roots=options.roots,
                learning_rate=options.learning_rate,
                warmup_steps=options.warmup_steps,
                head_tokens=options.head_tokens,
                loss=LossWeights(options.decay, options.focal, options.chain_reward),
            ),
            text=options.text,
            prompts=options.prompts,
            dev=tuple(options.dev),
            dev_limit=options.dev_limit,
            block_size=options.block_size,
            num_layers=options.layers,
            taps=taps,
            mask_token=options.mask_token,
            init=options.init,
            temperature=options.temperature,
            max_new_tokens=options.max_new_tokens,
            limit=options.limit,
            max_tokens=options.max_tokens,
            eval_every=options.eval_every,
            resume=options.resume,
            chat_template_kwargs=parse_template_kwargs(options.chat_template_kwargs),
            device=options.device,
        )
    try:
        print(f"The drafter is in {train(chosen)}")
    except KeyboardInterrupt:
        print(f"\nInterrupted; the same command with --resume goes on with {chosen.out}", file=sys.stderr, end="")
        raise
    return 0


def _taps(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--taps takes layer numbers such as 1,8,14,20,27; got {text!r}") from error
