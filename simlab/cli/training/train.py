"""``simlab train``: a drafter for a target, and what policies are fitted with."""

import argparse
from pathlib import Path
from typing import Any

from simlab.cli.model_options import add_device
from simlab.cli.options import Options, add_limit, add_track
from simlab.cli.parser import Parser, add_command, not_negative, positive
from simlab.cli.training.fits import FITS, Kind
from simlab.cli.training.plan import add_network_plan, add_plan, finished, plan_of
from simlab.cli.training.router import ROUTER
from simlab.errors import UsageError, at_the_door, needing_models
from simlab.limits.typed_numbers import whole_number
from simlab.real_runner.record.options import parse_template_kwargs
from simlab.real_runner.train.options import (
    LABELS,
    PATH,
    Eagle3Options,
    HeadOptions,
    LossWeights,
    ScorerOptions,
    SelfOptions,
    TextOptions,
    TrainingPlan,
    TrainOptions,
)
from simlab.studies.inputs.models import DRAFTER, TARGET

DETAILS = ""

_DRAFTER_PLAN = TrainingPlan(steps=5000)
_EAGLE3_PLAN = TrainingPlan(
    steps=5000, num_sequences=4, num_roots=64, learning_rate=1e-3, warmup_steps=100, weight_decay=0.01, head_tokens=0
)
_HEAD_PLAN = TrainingPlan(
    steps=600, num_sequences=16, num_roots=16, warmup_steps=50, weight_decay=0.1, head_tokens=4096
)
_SCORER_PLAN = TrainingPlan(
    steps=400, num_sequences=16, num_roots=16, learning_rate=3e-3, warmup_steps=20, weight_decay=1e-4, head_tokens=0
)

_SELF_PLAN = TrainingPlan(
    steps=3000, num_sequences=1, num_roots=32, learning_rate=1e-3, warmup_steps=50, weight_decay=0.01, head_tokens=4096
)

_DFLASH = """The text is a Parquet table of token ids (columns prompt_ids, text_ids), a JSONL file of prompts
with their answers, or, with --prompts, what the target itself answers.

  simlab train dflash --prompts prompts.jsonl --dev dev.jsonl --steps 5000 --out runs/drafter
  simlab train dflash --text text.parquet --init dflash-smollm2-135m --steps 5000 --out runs/longer

The run's folder holds the drafter (config.json, model.safetensors, README.md), its curve, and what
is needed to go on after an interruption: the same command with --resume continues from the last
evaluation, and ends with the same drafter as a run that was never interrupted. The text's hidden
states are kept there too: taps x hidden size x 2 bytes a token. They can be deleted afterwards.

--init FOLDER begins a new run, with its own schedule, where another ended: with the float32 weights
and the optimiser's moments of FOLDER/state.safetensors where there is one, else with the weights of
model.safetensors and a new optimiser. It says on stderr which.

  simlab train dflash --text text.parquet --init dflash-smollm2-135m --variable-prefix 0.8 --out runs/second
  simlab train dflash --text text.parquet --init dflash-smollm2-135m --causal --out runs/causal

The first is a second drafter for `d2sd`: it drafts behind tokens that are there already. The second is a
causal head: in a block no slot sees a later one, so that a depth goes on from the depths before."""


_HELD_OUT = """Some texts are held out. The checkpoint has the weights of the step at which the loss on them was
lowest, and the run ends early when it no longer falls. It belongs to this drafter: beside another
it is refused. --resume goes on after an interruption, as with a drafter."""

_TREEFLASH = (
    """A first-order head (TreeFlash, arXiv 2606.03819) says what a drafter thinks of a depth once the token
above it is known. It learns from the same kinds of text as a drafter does, and the drafter stays as it
is. Give text that the drafter was not trained on: on its own text a drafter is better than it will be.

  simlab train treeflash --prompts fresh.jsonl --out runs/head
  simlab train treeflash --text text.parquet --draft runs/drafter --steps 2000 --patience 0 --out runs/head

"""
    + _HELD_OUT
)


_TAPS = (
    """A scorer (after TAPS, arXiv 2606.00487) says how probable a node of a draft tree is once its parent is right.
Its nodes are those of a beam over the drafter's candidates; the drafter stays as it is. It learns from
the same kinds of text as a head does, and from its own path: below each node that the text goes through,
which token came. With --labels law it learns what the target thinks of every node, as the release does.

  simlab train taps --prompts fresh.jsonl --out runs/scorer
  simlab train taps --prompts fresh.jsonl --labels law --law-roots 4000 --out runs/scorer
  simlab record --trace runs/mine --add-channel taps=runs/scorer

"""
    + _HELD_OUT
)


_EAGLE3 = """An EAGLE-3 head (arXiv 2503.01840) goes on from the target's own states, token by token: what it needs is a
target, and no drafter. It learns below its own outputs, as many passes as --passes, from the same kinds
of text as a drafter does, what the target thinks of each next token.

  simlab train eagle3 --prompts prompts.jsonl --out runs/eagle3
  simlab record --trace runs/mine --add-channel eagle3=runs/eagle3
  simlab replay --trace runs/mine -p 'eagle3:budget=59,steps=7'

Some texts are held out. The checkpoint has the weights of the step at which the loss on them was
lowest. --resume goes on after an interruption."""


_SELF = """With an adapter a target drafts for itself (after arXiv 2507.11851): some rows of a pass hold masks, and the
adapter, a low-rank change of every product, is felt at these alone. All other rows are the target's own,
bit for bit, so it writes what it writes without an adapter. It learns from the same kinds of text as a
drafter does; the target stays as it is.

  simlab train self --text text.parquet --masks 4 --rank 16 --out runs/self

A step reads its texts anew: one text and many roots in it are what costs least on a CPU. Some texts are
held out. The checkpoint has the weights of the step at which the loss on them was lowest. --resume goes
on after an interruption. A first-order head on its masks: train treeflash --draft runs/self."""


def add_arguments(parser: Parser) -> None:
    """Declare the kinds, each with its options."""
    kinds = parser.add_commands("kinds", "KIND", "kind")
    for name, kind in KINDS.items():
        kind.add_arguments(add_command(kinds, name, kind.summary, kind.details))


def run(options: argparse.Namespace) -> int:
    """Train what was asked for."""
    return KINDS[options.kind].run(options)


def _add_dflash(parser: Parser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--dev", type=Path, action="append", default=[], metavar="FILE", help="prompts to score on; repeats"
    )
    parser.add_argument(
        "--dev-limit", type=positive, default=48, metavar="N", help="prompts of each --dev (default 48)"
    )
    _add_answers(parser.add_argument_group("text"))
    _add_sizes(parser.add_argument_group("drafter"))
    add_plan(parser.add_argument_group("plan"), _DRAFTER_PLAN, eval_every=500)
    loss = parser.add_argument_group("loss")
    _add_loss(loss)
    loss.add_argument(
        "--variable-prefix",
        type=float,
        metavar="X",
        help="blocks begin with l true tokens, l as likely as X to the power l, and the loss with what comes behind; "
        "D2SD's second drafter learns so (try 0.8; default: with none)",
    )


def _add_taps(parser: Parser) -> None:
    _add_network(parser)
    pools = parser.add_argument_group("pools")
    pools.add_argument("--beam", type=positive, default=48, metavar="N", help="nodes of each depth (default 48)")
    said = "the drafter's candidates of the next depth that are looked at below each (default 64)"
    pools.add_argument("--extensions", type=positive, default=64, metavar="N", help=said)
    add_network_plan(parser.add_argument_group("plan"), _SCORER_PLAN)
    parser.set_defaults(head_tokens=_SCORER_PLAN.head_tokens)
    said = "of the loss on whole paths, beside that below single nodes (default 0.5)"
    loss = parser.add_argument_group("loss")
    loss.add_argument("--reach-weight", type=float, default=0.5, metavar="X", help=said)
    said = (
        "path: the tokens of the text, below the nodes that it goes through (default); law: the target's "
        "probabilities at all nodes, as the release learns, a pass of the target for each pool"
    )
    loss.add_argument("--labels", choices=LABELS, default=PATH, help=said)
    said = "with law: pools that the target is asked at, as many of each text (default 4000)"
    loss.add_argument("--law-roots", type=positive, default=4000, metavar="N", help=said)


def _add_treeflash(parser: Parser) -> None:
    _add_network(parser)
    head = parser.add_argument_group("head")
    head.add_argument("--inner-size", type=positive, metavar="N", help="between its matrices (default: the drafter's)")
    head.add_argument(
        "--dropout", type=float, default=0.1, metavar="X", help="share of its inputs that a step omits (default 0.1)"
    )
    add_network_plan(parser.add_argument_group("plan"), _HEAD_PLAN)
    _add_decay(parser.add_argument_group("loss"))


def _add_eagle3(parser: Parser) -> None:
    _add_run(parser)
    _add_answers(parser.add_argument_group("text"))
    head = parser.add_argument_group("head")
    said = "its own tokens: the commonest of the text and those that end one; 0: all of the target's (default 8192)"
    head.add_argument("--draft-vocab", type=not_negative, default=8192, metavar="N", dest="head_tokens", help=said)
    head.add_argument("--taps", metavar="I,J,...", help="target layers whose states are read (default: the release's)")
    add_network_plan(parser.add_argument_group("plan"), _EAGLE3_PLAN, eval_every=250, patience=0)
    loss = parser.add_argument_group("loss")
    said = "of the head below each root, each on the output of the one before (default 7)"
    loss.add_argument("--passes", type=positive, default=7, metavar="N", help=said)
    _add_decay(loss)


def _add_self(parser: Parser) -> None:
    _add_run(parser)
    _add_answers(parser.add_argument_group("text"))
    adapter = parser.add_argument_group("adapter")
    adapter.add_argument(
        "--masks", type=positive, default=4, metavar="N", help="tokens that are drafted behind one (default 4)"
    )
    adapter.add_argument("--rank", type=positive, default=16, metavar="N", help="of each change (default 16)")
    add_network_plan(parser.add_argument_group("plan"), _SELF_PLAN, eval_every=100, patience=0, held_out=0.01)
    loss = parser.add_argument_group("loss")
    said = "of the squared distance between a mask's state and that of the text's own row (default 0.1)"
    loss.add_argument("--consistency", type=float, default=0.1, metavar="X", help=said)
    _add_decay(loss)


def _add_network(parser: Parser) -> None:
    """Add the target, the drafter that stays as it is, the text, and the folder of the run."""
    _add_run(parser)
    parser.add_argument(
        "--draft", default=DRAFTER, metavar="D", help=f"the drafter: its name or folder (default {DRAFTER})"
    )
    _add_answers(parser.add_argument_group("text"))


def _add_run(parser: Parser) -> None:
    """Add the target, the text, and the folder of the run."""
    parser.add_argument(
        "--target",
        default=TARGET,
        metavar="T",
        help="the model to draft for: a Hugging Face id, a folder, or smollm2-135m (default)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="text to learn from: .parquet or .jsonl")
    source.add_argument("--prompts", type=Path, metavar="FILE", help="prompts that the target answers first")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    add_limit(parser, "the first N texts only")
    add_device(parser)
    add_track(parser)


def _add_answers(group: Options) -> None:
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


def _add_sizes(group: Options) -> None:
    group.add_argument(
        "--init",
        default="target",
        metavar="FROM",
        help="target (its last layers), random, or a drafter's name or folder (default target)",
    )
    group.add_argument("--block-size", type=positive, metavar="N", help="root included (default 8)")
    group.add_argument("--layers", type=positive, metavar="N", help="draft layers (default 2)")
    group.add_argument("--taps", metavar="I,J,...", help="target layers whose states are read (default: five, spread)")
    said = "no slot of a block sees a later one: a causal head, as JetSpec has it"
    group.add_argument("--causal", action="store_true", help=said)
    group.add_argument(
        "--mask-token", metavar="TEXT", help="a token of the target (default: one that no text contains)"
    )


def _add_loss(group: Options) -> None:
    _add_decay(group)
    group.add_argument(
        "--focal", type=float, default=0.3, metavar="X", help="extra weight of the first error (default 0.3)"
    )
    group.add_argument(
        "--chain-reward", type=float, default=1.0, metavar="X", help="reward per expected accepted token (default 1)"
    )


def _add_decay(group: Options) -> None:
    group.add_argument(
        "--decay",
        type=float,
        default=4.0,
        metavar="X",
        help="depths over which a position's weight falls by e; 0: none (default 4)",
    )


def _texts(options: argparse.Namespace) -> TextOptions:
    return TextOptions(
        text=options.text,
        prompts=options.prompts,
        limit=options.limit,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        max_new_tokens=options.max_new_tokens,
        chat_template_kwargs=parse_template_kwargs(options.chat_template_kwargs),
    )


def _run_dflash(options: argparse.Namespace) -> int:
    """Train a drafter, and say where it is."""
    taps = _taps(options.taps)
    with needing_models("train"):
        from simlab.real_runner.train.train import train  # noqa: PLC0415 - loads torch
    with at_the_door():
        loss = LossWeights(options.decay, options.focal, options.chain_reward)
        chosen = TrainOptions(
            target=options.target,
            out=options.out,
            plan=plan_of(options, loss, _DRAFTER_PLAN.weight_decay),
            texts=_texts(options),
            dev=tuple(options.dev),
            dev_limit=options.dev_limit,
            block_size=options.block_size,
            num_layers=options.layers,
            taps=taps,
            mask_token=options.mask_token,
            init=options.init,
            causal=options.causal,
            variable_prefix=options.variable_prefix,
            eval_every=options.eval_every,
            resume=options.resume,
            device=options.device,
            track=tuple(options.track),
        )
    return finished(chosen.out, lambda: f"The drafter is in {train(chosen)}")


def _run_treeflash(options: argparse.Namespace) -> int:
    """Train a head, and say where it is."""
    with needing_models("train"):
        from simlab.real_runner.train.networks.treeflash import train_head  # noqa: PLC0415 - loads torch
    with at_the_door():
        chosen = HeadOptions(
            **_beside_drafter(options, options.decay), inner_size=options.inner_size, dropout=options.dropout
        )
    return finished(chosen.out, lambda: f"The head is in {train_head(chosen)}")


def _run_taps(options: argparse.Namespace) -> int:
    """Train a scorer, and say where it is."""
    with needing_models("train"):
        from simlab.real_runner.train.networks.taps import train_scorer  # noqa: PLC0415 - loads torch
    with at_the_door():
        chosen = ScorerOptions(
            **_beside_drafter(options, decay=0.0),
            beam=options.beam,
            extensions=options.extensions,
            reach_weight=options.reach_weight,
            labels=options.labels,
            law_roots=options.law_roots,
        )
    return finished(chosen.out, lambda: f"The scorer is in {train_scorer(chosen)}")


def _run_eagle3(options: argparse.Namespace) -> int:
    """Train an EAGLE-3 head, and say where it is."""
    taps = _taps(options.taps)
    with needing_models("train"):
        from simlab.real_runner.train.networks.eagle3 import train_eagle3  # noqa: PLC0415 - loads torch
    with at_the_door():
        chosen = Eagle3Options(**_of_network(options, options.decay), passes=options.passes, taps=taps)
    return finished(chosen.out, lambda: f"The head is in {train_eagle3(chosen)}")


def _run_self(options: argparse.Namespace) -> int:
    """Train an adapter, and say where it is."""
    with needing_models("train"):
        from simlab.real_runner.train.networks.adapter import train_self  # noqa: PLC0415 - loads torch
    with at_the_door():
        chosen = SelfOptions(
            **_of_network(options, options.decay),
            masks=options.masks,
            rank=options.rank,
            consistency=options.consistency,
        )
    return finished(chosen.out, lambda: f"The adapter is in {train_self(chosen)}")


def _of_network(options: argparse.Namespace, decay: float) -> dict[str, Any]:
    """The settings that all networks have, checked where they are put together."""
    names = ("target", "out", "held_out", "patience", "eval_every", "resume", "device")
    plan = plan_of(options, LossWeights(decay, focal=0.0, chain=0.0), options.weight_decay)
    beside = {"plan": plan, "texts": _texts(options), "track": tuple(options.track)}
    return beside | {name: getattr(options, name) for name in names}


def _beside_drafter(options: argparse.Namespace, decay: float) -> dict[str, Any]:
    """The settings that all networks beside a drafter have."""
    return _of_network(options, decay) | {"draft": options.draft}


def _taps(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(whole_number(part.strip(), 0) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--taps takes layer numbers such as 1,8,14,20,27; got {text!r}") from error


KINDS = {
    "dflash": Kind("Train a block-diffusion drafter.", _DFLASH, _add_dflash, _run_dflash),
    "treeflash": Kind("Train a first-order head for a drafter.", _TREEFLASH, _add_treeflash, _run_treeflash),
    "taps": Kind("Train a scorer of draft trees for a drafter.", _TAPS, _add_taps, _run_taps),
    "eagle3": Kind("Train an EAGLE-3 head, which needs no drafter.", _EAGLE3, _add_eagle3, _run_eagle3),
    "router": ROUTER,
    "self": Kind("Train an adapter with which a target drafts for itself.", _SELF, _add_self, _run_self),
    **FITS,
}
"""Everything that can be trained, by the word that is typed behind ``simlab train``."""
