"""Conformance files: the reader needs no simlab, holds for every policy, and every planted mistake makes it fail."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import output_of
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_costs import EMPTY, filled, random_table
from places import REPOSITORY, TESTS
from synthetic_traces import SyntheticChannels, write_synthetic_trace

from simlab.cli.main import main
from simlab.cost import CostTable
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.conformance import conformance_rounds
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.price import Price
from simlab.policies.named.taps import Taps
from simlab.policies.named.treeflash import TreeFlash
from simlab.policy import AnyPolicy
from simlab.testing.random_texts import random_text_for
from simlab.traces.artefacts.cost import write_cost_file

READER = TESTS / "helpers" / "check_conformance.py"
PAGE = (REPOSITORY / "docs" / "reference" / "conformance.md").read_text(encoding="utf-8")
SHIPPED = {path.stem: path for path in (REPOSITORY / "traces" / "data" / "conformance").glob("*.jsonl")}
NAMES = ["caddtree", "chain", "ddtree", "taps", "treeflash"]
Round = dict[str, Any]
CHECK: Callable[[Round, Round], None] = runpy.run_path(str(READER))["check"]

ON_ROWS = "edges=transitions,channel=transitions,previous=4,top_k=4"
OPTIONAL = ("channels", "seconds", "memory", "text_before", "entropies")

MINE = """
from dataclasses import dataclass
from simlab import Draft, DraftTree, Needs, Outcome, Prompt

@dataclass(frozen=True)
class Memory:
    rounds: int
    lengths: tuple

@dataclass(frozen=True)
class LongerAfterSuccess:
    budget: int = 7

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    def start(self, prompt: Prompt) -> Memory:
        return Memory(0, (1,))

    def select(self, draft: Draft, state: Memory) -> DraftTree:
        length = min(state.lengths[-1], self.budget)
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(length))

    def update(self, state: Memory, outcome: Outcome) -> Memory:
        return Memory(state.rounds + 1, (outcome.num_accepted + 1,))

@dataclass(frozen=True)
class Forgetful(LongerAfterSuccess):
    def start(self, prompt: Prompt) -> Memory:
        return Memory(0, ({2}, 1))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "trace"
    return write_synthetic_trace(folder, num_sequences=4, length=30, channels=SyntheticChannels())


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, filled(EMPTY))
    return path


def lines_of(path: Path) -> list[Round]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read(path: Path, reader: Path = READER) -> str:
    """What the reader says of a file, without simlab in reach; nothing if it holds."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(reader), str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stdout + done.stderr == "")
    return done.stderr


def written(path: Path, lines: list[Round]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_set_holds(name: str) -> None:
    assert sorted(SHIPPED) == NAMES
    header, *rounds = lines_of(SHIPPED[name])
    assert header["name"] == name
    assert header["num_rounds"] == len(rounds)
    assert read(SHIPPED[name]) == ""


def test_the_page_links_to_the_reader_and_it_runs_alone(tmp_path: Path) -> None:
    shown = READER.read_text(encoding="utf-8")
    assert "](../../tests/helpers/check_conformance.py)" in PAGE
    assert len(shown.splitlines()) < 120
    assert not re.search(r"^\s*(from|import) (simlab|numpy)", shown, re.MULTILINE)
    copy = tmp_path / "reader.py"
    copy.write_text(shown, encoding="utf-8")
    assert {read(path, copy) for path in SHIPPED.values()} == {""}


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_on_the_page_make_the_shipped_set(name: str, tmp_path: Path) -> None:
    (command,) = re.findall(rf"^simlab (export .*/{name}\.jsonl)$", PAGE, re.MULTILINE)
    *arguments, out = shlex.split(command)
    made = tmp_path / Path(out).name
    assert main([*arguments, str(made)]) == 0
    (header, *rounds), (shipped_header, *shipped) = lines_of(made), lines_of(REPOSITORY / out)
    if rounds != shipped:
        pytest.fail(f"the shipped rounds are not what simlab makes now; run `simlab {command}`")
    assert header | {"simlab_version": ""} == shipped_header | {"simlab_version": ""}


def test_the_shipped_set_has_what_implementations_get_wrong() -> None:
    """Rows with ties that decide, depths with few candidates, ends of texts, trees of no drafted token."""
    _, *rounds = lines_of(SHIPPED["ddtree"])
    assert sum(by_age(one) != one for one in rounds) >= 5
    assert len({len(row) for one in rounds for row in one["ids"]}) > 5
    assert any(one["next_root"] is None and len(one["path"]) == len(one["follows"]) for one in rounds)
    assert any(one["next_root"] is None and len(one["path"]) < len(one["follows"]) for one in rounds)
    assert {len(one["path"]) for one in rounds} >= {0, 1, 2, 3}
    sizes = {len(one["tokens"]) - 1 for one in lines_of(SHIPPED["caddtree"])[1:]}
    assert {0, 7, 32} <= sizes
    assert len(sizes) > 5


def rebuilt(one: Round, key: Callable[[int, tuple[int, ...]], Any]) -> Round:
    """A round with the tree that another order of nodes makes, and all that follows from it."""
    costs = [[-value for value in row] for row in one["log_probs"]]
    paths: list[tuple[int, ...]] = [()]
    level: list[tuple[int, ...]] = [()]
    for row in costs:
        level = [(*path, rank) for path in level for rank in range(len(row))]
        level = sorted(level, key=lambda path: key(sum_of(costs, path), path))[:16]
        paths += level
    paths = sorted(paths, key=lambda path: key(sum_of(costs, path), path))[:17]
    tokens = [one["ids"][len(path) - 1][path[-1]] if path else one["root_token"] for path in paths]
    start, accepted = one["context_length"], [0]
    for depth, token in enumerate(one["follows"]):
        children = [n for n, path in enumerate(paths) if path[:-1] == paths[accepted[-1]] and len(path) == depth + 1]
        found = [n for n in children if tokens[n] == token]
        if not found:
            break
        accepted += found
    committed = one["follows"][: len(accepted)]
    ended = one["text_ends"] and len(accepted) >= len(one["follows"])
    return one | {
        "tokens": tokens,
        "parents": [paths.index(path[:-1]) if path else -1 for path in paths],
        "positions": [start + len(path) for path in paths],
        "mask": ["".join("1" if path[: len(above)] == above else "0" for above in paths) for path in paths],
        "path": accepted[1:],
        "committed": committed,
        "kept_rows": [start + node for node in accepted],
        "next_root": None if ended else committed[-1],
    }


def sum_of(costs: list[list[int]], path: tuple[int, ...]) -> int:
    return sum(row[rank] for row, rank in zip(costs, path, strict=False))


def by_age(one: Round) -> Round:
    """Equal scores by the larger ranks, as a heap with a counter might have it."""
    return rebuilt(one, lambda cost, path: (cost, len(path), tuple(-rank for rank in path)))


def deep(rounds: list[Round]) -> Round:
    """A round whose accepted path leaves out nodes, so that its cache is compacted."""
    return next(one for one in rounds if len(one["path"]) > 1 and one["path"] != list(range(1, len(one["path"]) + 1)))


def flipped(text: str, place: int) -> str:
    return text[:place] + ("0" if text[place] == "1" else "1") + text[place + 1 :]


def deeper(one: Round) -> None:
    one["positions"][-1] += 1


def moved(one: Round) -> None:
    one["parents"][-1] = one["parents"][-1] - 1 if one["parents"][-1] else 1


def unseen(one: Round) -> None:
    one["mask"][-1] = flipped(one["mask"][-1], 0)


def sees_a_cousin(one: Round) -> None:
    one["mask"][2] = flipped(one["mask"][2], 1)


def sees_a_later_node(one: Round) -> None:
    one["mask"][0] = flipped(one["mask"][0], 1)


def accepts_less(one: Round) -> None:
    one["path"].pop()


def accepts_another(one: Round) -> None:
    one["path"][-1] += 1


def keeps_another_row(one: Round) -> None:
    one["kept_rows"][-1] -= 1


def keeps_rows_in_another_order(one: Round) -> None:
    one["kept_rows"][1:3] = one["kept_rows"][2:0:-1]


def forgets_the_roots_row(one: Round) -> None:
    one["kept_rows"].pop(0)


def without_a_bonus_token(one: Round) -> None:
    one["committed"].pop()


def another_next_root(one: Round) -> None:
    one["next_root"] += 1


def another_root(one: Round) -> None:
    one["root_token"] += 1


def another_token(one: Round) -> None:
    one["tokens"][1] = one["ids"][0][-1]


def one_step_down(one: Round) -> None:
    one["log_probs"][0] = [value - 1_000_000 for value in one["log_probs"][0][:1]] + one["log_probs"][0][1:]


MISTAKES = [
    deeper,
    moved,
    unseen,
    sees_a_cousin,
    sees_a_later_node,
    accepts_less,
    accepts_another,
    keeps_another_row,
    keeps_rows_in_another_order,
    forgets_the_roots_row,
    without_a_bonus_token,
    another_next_root,
    another_root,
    another_token,
    one_step_down,
]


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", ["caddtree", "ddtree"])
def test_a_planted_mistake_fails(name: str, mistake: Callable[[Round], None], tmp_path: Path) -> None:
    header, *rounds = lines_of(SHIPPED[name])
    mistake(deep(rounds))
    assert rounds != lines_of(SHIPPED[name])[1:]
    assert "AssertionError" in read(written(tmp_path / "wrong.jsonl", [header, *rounds]))


def test_a_file_that_is_cut_short_or_misses_a_round_fails(tmp_path: Path) -> None:
    header, *rounds = lines_of(SHIPPED["chain"])
    assert "is cut short" in read(written(tmp_path / "short.jsonl", [header, *rounds[:-1]]))
    missing = [header | {"num_rounds": len(rounds) - 1}, rounds[0], *rounds[2:]]
    assert rounds[0]["text"] == rounds[2]["text"]
    assert "AssertionError" in read(written(tmp_path / "gap.jsonl", missing))


@settings(max_examples=examples(60, quick=40))
@given(
    seed=st.integers(0, 2**63),
    most_kept=st.integers(1, 20),
    name=st.sampled_from(["ar", "chain", "ddtree", "caddtree", "price", "treeflash", "taps"]),
    budget=st.integers(1, 20),
    look_ahead=st.integers(0, 4),
    tile=st.integers(1, 5),
    depth_price=st.sampled_from([0.0, 0.002, 0.5]),
)
def test_the_reader_agrees_on_any_text(
    seed: int, most_kept: int, name: str, budget: int, look_ahead: int, tile: int, depth_price: float
) -> None:
    generator = np.random.default_rng(seed)
    table = random_table(generator)

    class Shelf(NoArtefacts):
        def cost(self, name: str) -> tuple[CostTable, str]:
            return table, "made-up"

    chosen: dict[str, tuple[AnyPolicy, dict[str, object]]] = {
        "ar": (Autoregressive(), {}),
        "chain": (Chain(budget), {"length": budget}),
        "ddtree": (DDTree(budget), {"budget": budget}),
        "caddtree": (
            CaDDTree(budget, look_ahead, tile).compose(Shelf()),
            {"budget": budget, "look_ahead": look_ahead, "tile": tile},
        ),
        "price": (Price(budget, look_ahead=look_ahead).compose(Shelf()), {}),
        "treeflash": (TreeFlash(budget, previous=look_ahead + 1, top_k=tile), {"budget": budget}),
        "taps": (Taps(budget, beam=tile, depth_price=depth_price), {"budget": budget, "depth_price": depth_price}),
    }
    policy, header = chosen[name]
    recorded = random_text_for(policy, generator, most_kept)
    found = json.loads(json.dumps(list(conformance_rounds(policy, recorded))))
    for one in found:
        CHECK({"name": name, "settings": header}, one | {"text": "made up"})
    committed = [token for one in found for token in one["committed"]]
    assert committed == recorded.text[1:].tolist()
    assert [one["next_root"] is None for one in found] == [False] * (len(found) - 1) + [True] * bool(found)


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        ("ar", set()),
        ("chain", set()),
        ("ddtree:budget=8", set()),
        ("caddtree:budget=8,overhead=true", {"seconds"}),
        ("entropy-width:budget=12", {"entropies"}),
        ("price:budget=8", {"seconds", "memory"}),
        ("vllm-adaptive", {"seconds"}),
        ("sglang-dspark:probe=1", {"seconds"}),
        ("treeflash:budget=8,channel=transitions,previous=3,top_k=4", {"channels"}),
        ("taps:budget=8,channel=pool,beam=3,depth_price=0.1", {"channels"}),
        ("d2sd:budget=9,channel=branches,branches=2", {"channels"}),
        ("d2sd:budget=9,channel=branches,branches=2,exclude=true", {"channels"}),
        ("d2sd:budget=9,channel=branches,branches=3,width=3", {"channels"}),
        (f"tree:budget=8,{ON_ROWS},order=expand-parent,width=2", {"channels"}),
        (f"tree:budget=8,{ON_ROWS},ngram_weight=0.2,counts=text", {"channels", "text_before"}),
        ("MINE:LongerAfterSuccess", {"text_before", "memory"}),
    ],
)
def test_every_policy_can_be_exported(policy: str, keys: set[str], trace: Path, cost: Path, tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.py", tmp_path / "deep" / "out.jsonl"
    mine.write_text(MINE, encoding="utf-8")
    typed = policy.replace("MINE", str(mine))
    command = ["export", "--format", "conformance", "--trace", str(trace), "--cost", str(cost), "-p", typed]
    assert str(out) in output_of(*command, "--synthetic", "4", "--rounds", "5", "--out", out)
    assert read(out) == ""
    header, *rounds = lines_of(out)
    assert {key for key in rounds[0] if key in OPTIONAL} == keys
    texts = [one["text"] for one in rounds]
    assert max(texts.count(text) for text in texts if not text.startswith("made up")) == 5
    assert any(text.startswith("made up") for text in texts)
    assert all(len(one.get("text_before", [0] * one["context_length"])) == one["context_length"] for one in rounds)
    if "overhead" in policy:
        assert header["stages"] == ["draft", "select", "verify", "commit"]
        assert all(len(one["seconds"]) == 9 for one in rounds)
        assert header["artefacts"]["cost"] == filled(EMPTY).cost_id
    if "entropies" in keys:
        assert all(len(one["entropies"]) == len(one["ids"]) for one in rounds)
    if "MINE" in policy:
        assert rounds[1]["memory"] == {"rounds": 1, "lengths": [len(rounds[0]["path"]) + 1]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "ddtree:budget=8/16"], "names 2 policies"),
        (["-p", "nothing"], "no policy `nothing`"),
        (["-p", "ddtree:budget=9999"], "--exact-budget"),
        (["-p", "chain", "--limit", "0"], "at least 1"),
        (["-p", "chain", "--trace", "/does/not/exist"], "/does/not/exist"),
        (["-p", "chain", "--draft-set", "other"], "other"),
        (["-p", "chain", "--format", "protobuf"], "protobuf"),
        (["-p", "chain", "--cost", "/does/not/exist"], "/does/not/exist"),
        (["-p", "caddtree"], "latency profile"),
        (["-p", "chain", "--out", "FOLDER"], "expected a file"),
        (["-p", "MINE:Forgetful"], "cannot be written as JSON"),
        ([], "--policy"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], said: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    named = {"FOLDER": str(tmp_path), "MINE:Forgetful": f"{tmp_path / 'mine.py'}:Forgetful"}
    out = tmp_path / "out.jsonl"
    command = ["export", "--format", "conformance", "--trace", str(trace), "--out", str(out)]
    assert main([*command, *(named.get(argument, argument) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not out.exists()
