"""Undamaged inputs of every kind, small and quick to read; each is made when a case first wants it."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import confirm_runs
import dumped_files
import polars as pl
import torch
from candidate_files import candidate_lines, write_lines
from made_up_costs import filled
from made_up_heads import made_up_router
from random_adapter import make_adapter
from random_eagle3 import make_eagle3
from random_heads import make_head
from synthetic_traces import SyntheticChannels, write_synthetic_trace
from tiny_models import HIDDEN_SIZE, write_prompts
from training_runs import write_table

from simlab.cli.main import main
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.networks.router.network import save_router
from simlab.real_runner.networks.taps.config import PoolReach, ScorerSizes
from simlab.real_runner.networks.taps.scorer import TapsScorer, save_scorer
from simlab.real_runner.targets.loading import load_target
from simlab.traces.adder import add_draft
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.texts import add_token_texts

_LENGTH, VOCABULARY = 14, 200
BRACKETS = "run[1]"
"""A folder whose name could be taken for a pattern."""

POLICY = '''"""A policy as a user writes it."""

from dataclasses import dataclass

import numpy as np

from simlab import Draft, DraftTree, Needs, Stateless


@dataclass(frozen=True, slots=True)
class Mine(Stateless):
    """The most probable token at each depth."""

    length: int = 3

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    @property
    def budget(self) -> int:
        return self.length

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(self.length))
'''

_PRICED = "--trace trace --cost cost.json"
_MODELS = "--target models/target --draft models/drafter"
_SUMS = f"optimize {_PRICED} -p ddtree:budget=4/8 --shard"
_PART = "replay --trace trace -p ddtree:budget=4 --shard"
SIZES = (
    "--block-size 4 --layers 1 --taps 0,1,2 --steps 3 --eval-every 3 --sequences 2 --roots 4 --warmup-steps 2 "
    "--head-tokens 60 --max-new-tokens 16 --dev-limit 4"
)
"""Options of a training run of seconds."""

REPLAYED = f"replay {_PRICED} -p ddtree:budget=4/8 -p chain:length=2 --out results.parquet --json"
CONFIRMED = f"confirm --trace models/trace {_MODELS} -p ddtree:budget=4 --out confirmation --limit 2 --json --threads 1"
TRAINED = f"train dflash --target models/target --text training.parquet --out training {SIZES}"

_COMMANDS: dict[str, tuple[str, str]] = {
    "results.parquet": ("trace cost.json", REPLAYED),
    "half.parquet": ("trace cost.json", REPLAYED.replace("results", "half") + " --limit 2"),
    "pair": (
        "trace cost.json",
        f"replay {_PRICED} -p ddtree:budget=4 --out pair/r.parquet --rounds pair/n.parquet --limit 3",
    ),
    "calibration.json": ("trace", "train calibration --trace trace --out calibration.json"),
    "ranks.json": ("trace", "train ranks --trace trace --out ranks.json"),
    "ngram.parquet": ("other", "train ngram --trace other --out ngram.parquet"),
    "optimum.json": ("trace cost.json", f"optimize {_PRICED} -p ddtree:budget=4/8 --no-halving --out optimum.json"),
    "sums0.parquet": ("trace cost.json", f"{_SUMS} 0/2 --sums sums0.parquet"),
    "sums.parquet": ("trace cost.json", f"{_SUMS} 1/2 --sums sums.parquet"),
    "all-sums.parquet": ("sums0.parquet sums.parquet", "merge sums0.parquet sums.parquet --out all-sums.parquet"),
    "part0.parquet": ("trace", f"{_PART} 0/2 --out part0.parquet"),
    "part.parquet": ("trace", f"{_PART} 1/2 --out part.parquet"),
    "confirmation": ("models", CONFIRMED),
    "training": ("models training.parquet", TRAINED),
}
"""Inputs that simlab makes, from others: what those are, and the command, in their folder."""


def _trace(folder: Path, seed: int = 1) -> None:
    """A synthetic trace of two shards, with the texts of its tokens."""
    write_synthetic_trace(folder, seed, num_sequences=8, length=_LENGTH, vocab_size=VOCABULARY, prompts_per_shard=3)
    add_token_texts(folder, lambda ids: {number: f"t{number} ".encode() for number in ids})


def _channels(folder: Path) -> None:
    """A synthetic trace with channels of all kinds and a second draft set."""
    channels = SyntheticChannels(previous=3, top_k=3, beam=2, routes="ddtree:budget=8|chain")
    write_synthetic_trace(folder, 1, 8, _LENGTH, 7, 8, VOCABULARY, prompts_per_shard=3, channels=channels)
    trace = open_trace(folder)
    second = replace(trace.manifest.draft_sets["synthetic"], model=ModelInfo("second", "", "its digest"))
    columns = {recorded.index: recorded.drafts["synthetic"] for recorded in trace.records(["synthetic"])}
    add_draft(folder, "second", second, lambda recorded: columns[recorded.index])


def _brackets(folder: Path) -> None:
    """Inputs whose own names could be taken for patterns too."""
    names = ("trace", "results.parquet", "half.parquet", "texts.parquet", "gsm8k.jsonl", "timings.csv")
    make_missing(folder.parent, names)
    folder.mkdir()
    for name in names:
        source, copy = folder.parent / name, folder / name.replace(".", "[1].")
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)


def _heads(folder: Path) -> None:
    """Checkpoints of a head, a scorer, a router, EAGLE-3 and an adapter, for the tiny models."""
    make_missing(folder.parent, ["models"])
    target, drafter = folder.parent / "models/target", folder.parent / "models/drafter"
    folder.mkdir()
    make_head(folder / "treeflash", drafter, seed=0)
    scorer = TapsScorer(ScorerSizes(HIDDEN_SIZE, 3, rank=5, depth_size=3, inner_size=11))
    save_scorer(scorer, folder / "taps", checkpoint_digest(drafter), PoolReach(3, 4))
    loaded = load_target(str(target), torch.float32)
    save_router(made_up_router(loaded, ("chain", "ddtree:budget=4")).network, folder / "router")
    make_eagle3(folder / "eagle3")
    make_adapter(folder / "adapter", target)


def _dumps(folder: Path) -> None:
    """Hidden states as an engine dumps them, along the texts of the tiny target."""
    make_missing(folder.parent, ["models"])
    engine, rows = dumped_files.load_engine(folder.parent / "models/target"), []
    for text in open_trace(folder.parent / "models/trace").sequences():
        prompt, answer = text.prompt.token_ids.tolist(), text.text.tolist()
        rows.append({"id": f"text-{text.index}", "prompt_token_ids": prompt, "token_ids": answer})
        path = folder / "states" / f"cmpl-{text.index}.safetensors"
        dumped_files.dump(engine, path, [*prompt, *answer], (1, 2, 3, 4), without_last=text.index % 2 == 0)
    (folder / "served.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _candidates(path: Path) -> None:
    make_missing(path.parent, ["trace"])
    write_lines(path, candidate_lines(path.parent / "trace", top_k=3))


def _models(folder: Path) -> None:
    """A tiny target and drafter, prompts, and a trace of theirs."""
    confirm_runs.make(folder)
    write_prompts(folder / "more.jsonl", 6, num_turns=2)


def _rows(path: Path, rows: Iterable[object]) -> None:
    """Write one value a line, or all in one list."""
    rows = list(rows)
    is_one = path.suffix == ".json"
    path.write_text(json.dumps(rows, indent=1) if is_one else "".join(json.dumps(row) + "\n" for row in rows))


def _texts(path: Path) -> None:
    rows = [{"prompt_ids": [1 + i, 2], "text_ids": [(i * 7 + k * k) % 150 for k in range(10 + i)]} for i in range(6)]
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        _rows(path, rows)


def _timings(path: Path) -> None:
    cells = [
        {"nodes": nodes, "context": context, "seconds": 0.01 + nodes * 1e-4 + context * 1e-6 + repeat * 1e-4}
        for context in (16, 64, 256)
        for nodes in (1, 5, 9, 65)
        for repeat in (0, 1)
    ]
    if path.suffix == ".json":
        _rows(path, cells)
    else:
        path.write_text("# made up\n" + pl.DataFrame(cells).write_csv(float_precision=6))


MAKERS: dict[str, Callable[[Path], object]] = {
    "trace": _trace,
    "other": lambda folder: _trace(folder, 2),
    "cost.json": lambda path: write_cost_file(path, filled()),
    "channels": _channels,
    "large": lambda folder: write_synthetic_trace(folder, 3, num_sequences=4, length=60, vocab_size=VOCABULARY),
    BRACKETS: _brackets,
    # What servers and benchmarks say of the same counts: 20 and 9 rounds in two processes, 40 tokens accepted.
    "scrapes": lambda folder: shutil.copytree(Path(__file__).with_name("scrapes"), folder),
    "heads": _heads,
    "dumps": _dumps,
    "texts.parquet": _texts,
    "texts.jsonl": _texts,
    "candidates.jsonl": _candidates,
    "timings.csv": _timings,
    "timings.json": _timings,
    "policy.py": lambda path: path.write_text(POLICY),
    "models": _models,
    "training.parquet": write_table,
    "gsm8k.jsonl": lambda path: _rows(
        path, ({"question": f"{i} + {i}?", "answer": f"#### {2 * i}"} for i in range(12))
    ),
    "mbpp.json": lambda path: _rows(
        path, ({"task_id": i, "prompt": f"Write {i}.", "code": "x"} for i in range(11, 21))
    ),
    "mt-bench.jsonl": lambda path: _rows(
        path, ({"question_id": i, "category": "writing", "turns": [f"{i}?", "And?"]} for i in range(81, 93))
    ),
}
"""What makes the other inputs."""


def _typed(path: Path) -> None:
    """Make an input by its command."""
    needed, command = _COMMANDS[path.name]
    make_missing(path.parent, needed.split())
    if path.name == "pair":
        path.mkdir()
    with contextlib.chdir(path.parent):
        if code := main(command.split()):
            raise RuntimeError(f"`simlab {command}` fails on undamaged inputs: exit code {code}")


def make_missing(folder: Path, names: Iterable[str]) -> None:
    """Make those inputs that are not there yet, after those that they are made from."""
    for name in names:
        if not (folder / name).exists():
            MAKERS.get(name, _typed)(folder / name)
