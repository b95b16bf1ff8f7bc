"""Undamaged inputs of every kind, small and quick to read; each is made when a kind first wants it."""

import json
import multiprocessing
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
from made_up_costs import filled
from synthetic_traces import SyntheticChannels, write_synthetic_trace

from simlab.cli.main import main
from simlab.traces.adder import add_draft
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.texts import add_token_texts

BOMB = 100_000_000
"""Values in the list of a bomb: they take a few kilobytes on disk."""

_LENGTH, _VOCABULARY = 14, 200


def _simlab(*words: object) -> None:
    code = main([str(word) for word in words])
    if code:
        raise RuntimeError(f"`simlab {' '.join(map(str, words))}` fails on undamaged inputs: exit code {code}")


def _trace(folder: Path, seed: int = 1) -> None:
    """A synthetic trace of two shards, with the texts of its tokens."""
    write_synthetic_trace(folder, seed, num_sequences=8, length=_LENGTH, vocab_size=_VOCABULARY, prompts_per_shard=3)
    add_token_texts(folder, lambda ids: {one: f"t{one} ".encode() for one in ids})


def _other_trace(folder: Path) -> None:
    """A trace of the same models with other texts."""
    _trace(folder, 2)


def _cost(path: Path) -> None:
    write_cost_file(path, filled())


def _results(path: Path, *more: object) -> None:
    make_missing(path.parent, ["trace", "cost.json"])
    named = ("--trace", path.parent / "trace", "--cost", path.parent / "cost.json")
    _simlab("replay", *named, "-p", "ddtree:budget=4/8", "-p", "chain:length=2", "--out", path, "--json", *more)


def _pair(folder: Path) -> None:
    """Results and the rounds that they are made of."""
    make_missing(folder.parent, ["trace", "cost.json"])
    folder.mkdir()
    named = ("--trace", folder.parent / "trace", "--cost", folder.parent / "cost.json", "-p", "ddtree:budget=4")
    _simlab("replay", *named, "--out", folder / "r.parquet", "--rounds", folder / "n.parquet", "--limit", 3)


def _half(path: Path) -> None:
    _results(path, "--limit", 2)


def _calibration(path: Path) -> None:
    make_missing(path.parent, ["trace"])
    _simlab("train", "calibration", "--trace", path.parent / "trace", "--out", path, "--json")


def _ranks(path: Path) -> None:
    make_missing(path.parent, ["trace"])
    _simlab("train", "ranks", "--trace", path.parent / "trace", "--out", path, "--json")


def _ngram(path: Path) -> None:
    make_missing(path.parent, ["other"])
    _simlab("train", "ngram", "--trace", path.parent / "other", "--out", path)


def _optimum(path: Path) -> None:
    make_missing(path.parent, ["trace", "cost.json"])
    named = ("--trace", path.parent / "trace", "--cost", path.parent / "cost.json")
    _simlab("optimize", *named, "-p", "ddtree:budget=4/8", "--no-halving", "--out", path, "--json")


def _sums(path: Path, shard: str = "1/2") -> None:
    make_missing(path.parent, ["trace", "cost.json"])
    named = ("--trace", path.parent / "trace", "--cost", path.parent / "cost.json")
    _simlab("optimize", *named, "-p", "ddtree:budget=4/8", "--shard", shard, "--sums", path)


def _part(path: Path, shard: str = "1/2") -> None:
    make_missing(path.parent, ["trace"])
    _simlab("replay", "--trace", path.parent / "trace", "-p", "ddtree:budget=4", "--shard", shard, "--out", path)


def _first_sums(path: Path) -> None:
    _sums(path, "0/2")


def _all_sums(path: Path) -> None:
    make_missing(path.parent, ["sums.parquet", "sums0.parquet"])
    _simlab("merge", path.parent / "sums0.parquet", path.parent / "sums.parquet", "--out", path)


def _first_part(path: Path) -> None:
    _part(path, "0/2")


def _channels(folder: Path) -> None:
    """A synthetic trace with channels of all kinds and a second draft set."""
    channels = SyntheticChannels(previous=3, top_k=3, beam=2, routes="ddtree:budget=8|chain")
    write_synthetic_trace(folder, 1, 8, _LENGTH, 7, 8, _VOCABULARY, prompts_per_shard=3, channels=channels)
    trace = open_trace(folder)
    second = replace(trace.manifest.draft_sets["synthetic"], model=ModelInfo("second", "", "its digest"))
    columns = {one.index: one.drafts["synthetic"] for one in trace.records(["synthetic"])}
    add_draft(folder, "second", second, lambda recorded: columns[recorded.index])


def _large(folder: Path) -> None:
    """A trace of which each shard is worth keeping decoded."""
    write_synthetic_trace(folder, 3, num_sequences=4, length=60, vocab_size=_VOCABULARY)


def _brackets(folder: Path) -> None:
    """Inputs in a folder whose name could be taken for a pattern."""
    names = ("trace", "results.parquet", "half.parquet", "texts.parquet", "gsm8k.jsonl", "timings.csv")
    make_missing(folder.parent, names)
    folder.mkdir()
    for name in names:
        source, copy = folder.parent / name, folder / name.replace(".", "[1].")
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)


def _scrapes(folder: Path) -> None:
    """What servers and benchmarks say of the same counts: 20 and 9 rounds in two processes, 40 tokens accepted."""
    from kinds_engines import write_scrapes

    write_scrapes(folder)


def _heads(folder: Path) -> None:
    """Checkpoints of a head, a scorer, a router, EAGLE-3 and an adapter, for the tiny models."""
    import torch
    from made_up_heads import made_up_router
    from random_adapter import make_adapter
    from random_eagle3 import make_eagle3
    from random_heads import make_head
    from tiny_models import HIDDEN_SIZE

    from simlab.real_runner.checkpoints.contents import checkpoint_digest
    from simlab.real_runner.networks.router.network import save_router
    from simlab.real_runner.networks.taps.config import PoolReach, ScorerSizes
    from simlab.real_runner.networks.taps.scorer import TapsScorer, save_scorer
    from simlab.real_runner.targets.loading import load_target

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
    import dumped_files

    make_missing(folder.parent, ["models"])
    engine, rows = dumped_files.load_engine(folder.parent / "models/target"), []
    for text in open_trace(folder.parent / "models/trace").sequences():
        prompt, answer = text.prompt.token_ids.tolist(), text.text.tolist()
        rows.append({"id": f"text-{text.index}", "prompt_token_ids": prompt, "token_ids": answer})
        path = folder / "states" / f"cmpl-{text.index}.safetensors"
        dumped_files.dump(engine, path, [*prompt, *answer], (1, 2, 3, 4), without_last=text.index % 2 == 0)
    (folder / "served.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _candidates(path: Path) -> None:
    from candidate_files import candidate_lines, write_lines

    make_missing(path.parent, ["trace"])
    write_lines(path, candidate_lines(path.parent / "trace", top_k=3))


def _texts(path: Path) -> None:
    rows = [([1 + i, 2], [(i * 7 + k * k) % 150 for k in range(10 + i)]) for i in range(6)]
    table = pl.DataFrame({"prompt_ids": [row[0] for row in rows], "text_ids": [row[1] for row in rows]})
    if path.suffix == ".parquet":
        table.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_dicts()))


def _timings(path: Path) -> None:
    rows = [(n, c, 0.01 + n * 1e-4 + c * 1e-6 + k * 1e-4) for c in (16, 64, 256) for n in (1, 5, 9, 65) for k in (0, 1)]
    names = ("nodes", "context", "seconds")
    if path.suffix == ".json":
        path.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
    else:
        lines = ["# made up", ",".join(names), *(f"{n},{c},{s:.6f}" for n, c, s in rows)]
        path.write_text("\n".join(lines) + "\n")


def _gsm8k(path: Path) -> None:
    path.write_text(
        "".join(json.dumps({"question": f"{i} + {i}?", "answer": f"#### {2 * i}"}) + "\n" for i in range(12))
    )


def _mbpp(path: Path) -> None:
    path.write_text(json.dumps([{"task_id": i, "prompt": f"Write {i}.", "code": "pass"} for i in range(11, 21)]))


def _mt_bench(path: Path) -> None:
    rows = [{"question_id": i, "category": "writing", "turns": [f"{i}?", "And?"]} for i in range(81, 93)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


POLICY = '''"""A policy as a user writes it."""

from dataclasses import dataclass

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


def _policy(path: Path) -> None:
    path.write_text(POLICY)


def _models(folder: Path) -> None:
    """A tiny target and drafter, prompts, and a trace of theirs."""
    from confirm_runs import make
    from tiny_models import write_prompts

    make(folder)
    write_prompts(folder / "more.jsonl", 6, num_turns=2)
    for path in (*(folder / "target").iterdir(), *(folder / "drafter").iterdir()):
        path.chmod(0o644)


def _confirmation(folder: Path) -> None:
    """The folder of a finished run of the tiny models."""
    make_missing(folder.parent, ["models"])
    trace = folder.parent / "models" / "trace"
    models = ("--target", folder.parent / "models/target", "--draft", folder.parent / "models/drafter")
    _simlab("confirm", "--trace", trace, *models, "-p", "ddtree:budget=4", "--out", folder, "--json", "--threads", 1)


def _training(folder: Path) -> None:
    """The folder of a training run of the tiny target."""
    from training_runs import arguments

    make_missing(folder.parent, ["models", "training.parquet"])
    text = ("--text", str(folder.parent / "training.parquet"))
    _simlab(*arguments(folder.parent / "models/target", folder, *text, steps=3))


def _training_text(path: Path) -> None:
    from training_runs import write_table

    write_table(path)


def _bombs(folder: Path) -> None:
    """Parquet files of the trace in which one list has a hundred million values, and one with as many rows."""
    make_missing(folder.parent, ["trace"])
    folder.mkdir()
    zeros = pl.Series([pl.repeat(0, BOMB, dtype=pl.Int32, eager=True)])
    draft = pl.read_parquet(folder.parent / "trace/draft-synthetic-0000.parquet")
    first = draft.head(1).with_columns(zeros.alias("ids"))
    pl.concat([first, draft.slice(1)]).write_parquet(folder / "ids.parquet", statistics=False)
    floats = zeros.list.eval(pl.element().cast(pl.Float32))
    pl.concat([first.with_columns(floats.alias("log_probs")), draft.slice(1)]).write_parquet(
        folder / "log_probs.parquet", statistics=False
    )
    texts = pl.read_parquet(folder.parent / "trace/sequences.parquet")
    first = texts.head(1).with_columns(zeros.alias("text_token_ids"))
    pl.concat([first, texts.slice(1)]).write_parquet(folder / "texts.parquet", statistics=False)


MAKERS: dict[str, Callable[[Path], None]] = {
    "mt-bench.jsonl": _mt_bench,
    "mbpp.json": _mbpp,
    "gsm8k.jsonl": _gsm8k,
    "trace": _trace,
    "other": _other_trace,
    "cost.json": _cost,
    "results.parquet": _results,
    "half.parquet": _half,
    "pair": _pair,
    "calibration.json": _calibration,
    "ranks.json": _ranks,
    "ngram.parquet": _ngram,
    "optimum.json": _optimum,
    "sums.parquet": _sums,
    "part.parquet": _part,
    "sums0.parquet": _first_sums,
    "all-sums.parquet": _all_sums,
    "part0.parquet": _first_part,
    "channels": _channels,
    "large": _large,
    "run[1]": _brackets,
    "scrapes": _scrapes,
    "heads": _heads,
    "dumps": _dumps,
    "texts.parquet": _texts,
    "texts.jsonl": _texts,
    "candidates.jsonl": _candidates,
    "timings.csv": _timings,
    "timings.json": _timings,
    "policy.py": _policy,
    "models": _models,
    "confirmation": _confirmation,
    "training.parquet": _training_text,
    "training": _training,
    "bombs": _bombs,
}
"""What makes each input; `_need` makes first what others are made from."""


def make_missing(folder: Path, names: Iterable[str]) -> None:
    """Make those inputs that are not there yet."""
    for name in names:
        if not (folder / name).exists():
            MAKERS[name](folder / name)


def make_inputs(folder: Path, names: Iterable[str]) -> None:
    """Make some inputs, in a process of their own, so that this one can still be forked.

    Raises:
        RuntimeError: they cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_make, args=(folder, sorted(set(names))))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the inputs could not be made; see {folder / 'log.txt'}")


def _make(folder: Path, names: list[str]) -> None:
    with (folder / "log.txt").open("w") as log:
        sys.stdout = sys.stderr = log
        make_missing(folder, names)
