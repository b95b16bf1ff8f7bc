"""Published figures of traces beside ours: the statistics by hand, what differs named, and the commands to type."""

import argparse
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import ran
from made_up_costs import EMPTY, filled
from study_results import refused, rows_of, value_of
from synthetic_traces import (
    DEFAULT_HEADS,
    DRAFT,
    SyntheticHeads,
    shards_of,
    synthetic_manifest,
    synthetic_sequences,
)

import simlab
from simlab.analysis.compare.averaging import both_means, find_ranking_flips
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.cli import main as command_line
from simlab.studies.reproduce.ddtreepp_rounds import read_released
from simlab.studies.reproduce.of_traces import DIFFERS, EQUAL, NOT_KNOWN, ON_PURPOSE, checks_of_trace
from simlab.studies.reproduce.published import DDTREE_GSM8K, PUBLISHED, ZLAB_166, PublishedStudy
from simlab.studies.reproduce.reproduce import reproduce
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import Trace, open_trace
from simlab.traces.writer import TraceWriter


def means_by_hand(texts: list[list[int]]) -> tuple[float, float]:
    """Pooled and macro mean of the lengths of each text's rounds."""
    every = [length for text in texts for length in text]
    return sum(every) / len(every), sum(sum(text) / len(text) for text in texts) / len(texts)


# --- released rounds; what is printed of them is kept in tests/golden


def test_statistics_of_released_rounds_by_hand() -> None:
    released = read_released()
    assert released.height == 4392
    rows = list(released.iter_rows(named=True))
    committed = [row["num_committed"] for row in rows]
    texts: dict[int, list[int]] = {}
    for row in rows:
        assert row["round_index"] == len(texts.setdefault(row["sample_index"], []))
        texts[row["sample_index"]].append(row["num_committed"])
    assert sorted(texts) == list(range(128))
    assert (min(committed), max(committed)) == (1, 16)
    pooled, macro = means_by_hand(list(texts.values()))
    assert (round(pooled, 3), round(macro, 3)) == (8.684, 8.823)
    reproduction = reproduce("ddtreepp-rounds")
    value = value_of(reproduction)
    seconds = sum(row["latency_ms"] for row in rows) / 1000
    by_hand = {
        "acceptance_length": pooled,
        "acceptance_length_macro": macro,
        "macro_over_pooled": macro / pooled,
        "whole_block_share": sum(one == 16 for one in committed) / len(committed),
        "least_accepted_per_verified": (sum(committed) - len(committed)) / (129 * len(committed)),
    }
    assert {name: value[name] for name in by_hand} == pytest.approx(by_hand)
    assert value["tokens_per_s"] == pytest.approx(sum(committed) / seconds, rel=1e-6)
    assert value["acceptance_length_ci_low"] < pooled < value["acceptance_length_ci_high"] < 9.08
    assert 0.99 < value["macro_over_pooled_ci_low"] < macro / pooled < value["macro_over_pooled_ci_high"]
    assert value["theirs"][0]["value"] == 8.68
    assert sum(row["rounds"] for row in value["rows"]) == len(rows)
    for row in value["rows"]:
        own = [one["num_committed"] for one in rows if one["action_name"] == row["run"]]
        assert row["acceptance_length"] == pytest.approx(sum(own) / len(own))
    pair = value["comparisons"][0]
    runs = [[one for one in rows if one["action_name"] == pair[side]] for side in ("first", "second")]
    shared = set.intersection(*({one["sample_index"] for one in run} for run in runs))
    assert (pair["first"], pair["prompts"]) == (value["rows"][0]["run"], len(shared))
    lengths = [[one["num_committed"] for one in run if one["sample_index"] in shared] for run in runs]
    assert pair["ratio"] == pytest.approx(means_by_hand([lengths[0]])[0] / means_by_hand([lengths[1]])[0])


# --- the two means


def run_of(name: str, texts: dict[str, tuple[int, int]]) -> PolicyRun:
    """A run from (tokens, rounds) of each prompt."""
    shared = {"dataset": "d", "turn": 0, "sample": 0}
    rows = pl.DataFrame([shared | {"prompt_id": one, "committed": c, "rounds": r} for one, (c, r) in texts.items()])
    stages = (pl.lit(1.0).alias(f"{stage}_s") for stage in ("draft", "channel", "select", "verify", "commit"))
    rows = rows.with_columns(*stages, cost_id=pl.lit(None, pl.String), draws_s=pl.lit(None, pl.List(pl.Float32)))
    return PolicyRun(name, rows, rows.clear())


def test_a_flip_is_seen_and_told_where_it_can_be() -> None:
    """The first policy is better on the few long texts, the second on the many short ones."""
    long, short = [f"l{n}" for n in range(10)], [f"s{n}" for n in range(40)]
    first = run_of("first", {**dict.fromkeys(long, (400, 100)), **dict.fromkeys(short, (20, 10))})
    second = run_of("second", {**dict.fromkeys(long, (400, 120)), **dict.fromkeys(short, (20, 8))})
    (flip,) = find_ranking_flips([first, second])
    assert flip.pooled.ratio == pytest.approx((4800 / 1400) / (4800 / 1520))
    assert flip.pooled.ratio > 1 > flip.macro.ratio
    macros = [(10 * 4 + 40 * 2) / 50, (10 * 400 / 120 + 40 * 20 / 8) / 50]
    assert flip.macro.ratio == pytest.approx(macros[0] / macros[1])
    assert flip.is_certain
    means = both_means(first)
    assert [means.pooled.value, means.macro.value] == pytest.approx([4800 / 1400, macros[0]])
    assert means.over.value == pytest.approx(means.macro.value / means.pooled.value)
    for estimate in (means.pooled, means.macro):
        assert estimate.interval.low < estimate.value < estimate.interval.high
    assert find_ranking_flips([first, replace(first, name="same")]) == []
    assert find_ranking_flips([first]) == []


# --- traces of the right models, and of others


def right_manifest(length: int = 40) -> Manifest:
    """The manifest of a made-up trace that says that it is of Qwen3-8B."""
    made = synthetic_manifest(length, depth=15)
    kept = replace(made.draft_sets[DRAFT], model=ModelInfo("z-lab/Qwen3-8B-DFlash-b16", "", "synthetic"))
    return replace(
        made,
        target=ModelInfo("Qwen/Qwen3-8B", "", "synthetic"),
        chat_template_kwargs={"enable_thinking": False},
        gt_mode="generated",
        draft_sets={DRAFT: kept},
    )


def right_trace(folder: Path, seed: int, heads: SyntheticHeads = DEFAULT_HEADS) -> Trace:
    records = [
        replace(record, prompt=replace(record.prompt, dataset="gsm8k", prompt_id=f"{seed}-{record.index}", turn=0))
        for record in synthetic_sequences(seed, 12, 40, depth=15, heads=heads)
    ]
    shards = list(shards_of(records, 4))
    writer = TraceWriter(folder, right_manifest(), len(shards), resume=False)
    for number, part in enumerate(shards):
        writer.write(number, part)
    writer.finish({})
    return open_trace(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Latencies of the right models, in ``cost.json``."""
    folder = tmp_path_factory.mktemp("reproduce")
    target, drafter = right_manifest().target, right_manifest().draft_sets[DRAFT].model
    write_cost_file(folder / "cost.json", filled(replace(EMPTY, target=target, drafter=drafter, block_size=16)))
    return folder


@pytest.fixture(scope="module")
def judged(folder: Path) -> Trace:
    return right_trace(folder / "trace", 1)


def states(
    manifest: Manifest, dataset: str = "gsm8k", num: int = 128, published: PublishedStudy = DDTREE_GSM8K
) -> dict[str, str]:
    prompts = {(dataset, str(number)) for number in range(num)}
    return {check["what"]: check["state"] for check in checks_of_trace(published, manifest, DRAFT, prompts)}


def test_a_trace_of_what_they_had_is_equal_in_all_it_shows() -> None:
    every = states(right_manifest(2048))
    assert {what for what, state in every.items() if state == NOT_KNOWN} == {"dtype", *DDTREE_GSM8K.not_known}
    assert {what for what, state in every.items() if state == ON_PURPOSE} == set(DDTREE_GSM8K.on_purpose)
    assert DIFFERS not in every.values()
    local = replace(right_manifest(2048), target=ModelInfo("/models/qwen3-8b/", "", "x"))
    assert states(local)["target"] == EQUAL


OTHERS: dict[str, Callable[[Manifest], Manifest]] = {
    "target": lambda one: replace(one, target=ModelInfo("Qwen/Qwen3-4B", "", "x")),
    "drafter": lambda one: replace(one, draft_sets={DRAFT: replace(one.draft_sets[DRAFT], model=one.target)}),
    "block": lambda one: replace(one, draft_sets={DRAFT: replace(one.draft_sets[DRAFT], block_size=8)}),
    "temperature": lambda one: replace(one, sampling=replace(one.sampling, temperature=1.0)),
    "thinking": lambda one: replace(one, chat_template_kwargs={}),
    "text": lambda one: replace(one, gt_mode="given"),
    "new tokens, at most": lambda one: replace(one, max_new_tokens=1024),
}


def test_each_thing_that_differs_is_named() -> None:
    manifest = right_manifest(2048)
    for what, change in OTHERS.items():
        assert [name for name, state in states(change(manifest)).items() if state == DIFFERS] == [what]
    assert states(manifest, dataset="mbpp")["dataset"] == DIFFERS
    assert states(manifest, num=127)["number of prompts"] == DIFFERS
    thinking = replace(manifest, chat_template_kwargs={"enable_thinking": True})
    assert states(thinking, published=ZLAB_166)["thinking"] == DIFFERS
    with pytest.raises(ValueError, match="of no trace"):
        checks_of_trace(PUBLISHED["averaging"], manifest, DRAFT, {("gsm8k", "0")})


def test_the_chain_of_a_trace_of_the_right_models(judged: Trace) -> None:
    reproduction = reproduce("zlab-166", traces=[judged])
    value, chain = value_of(reproduction), rows_of(simlab.replay(judged, ["chain"]))["chain"]
    macro, pooled = value["rows"]
    assert (macro["theirs"], pooled["theirs"]) == (6.39, 6.28)
    assert pooled["ours"] == pytest.approx(chain["acceptance_length"])
    assert macro["ours"] == pytest.approx(chain["acceptance_length_macro"])
    assert macro["difference_share"] == pytest.approx(macro["ours"] / 6.39 - 1)
    assert macro["within_interval"] is False
    assert value["differing"] == []
    assert "All that the trace can show is equal." in reproduction.text()


def test_the_budget_is_chosen_on_dev_prompts(judged: Trace, folder: Path) -> None:
    dev, cost = right_trace(folder / "dev", 2), folder / "cost.json"
    reproduction = reproduce("ddtree-gsm8k", traces=[judged], dev_trace=dev, cost=cost)
    value = value_of(reproduction)
    speeds = {row["policy"]: row["tokens_per_s"] for row in value["dev_budgets"]}
    budgets = [f"ddtree:budget={budget}" for budget in (16, 32, 64)]
    on_dev = rows_of(simlab.replay(dev, budgets, cost=cost))
    assert speeds == pytest.approx({label: on_dev[label]["tokens_per_s"] for label in budgets})
    assert value["chosen"] == max(speeds, key=lambda one: speeds[one])
    replayed = rows_of(simlab.replay(judged, [value["chosen"]], cost=cost))
    for row in value["rows"]:
        assert row["ours"] == pytest.approx(replayed[row["policy"]][row["measure"]])
    assert [row["theirs"] for row in value["rows"]] == [6.57, 9.54, 4.78, 6.75]
    assert [row["policy"] for row in value["rows"]] == ["chain", value["chosen"]] * 2
    assert value["differing"] == ["new tokens, at most", "number of prompts", "budgets tried"]
    assert "Of what must be equal differ: new tokens, at most, number of prompts, budgets tried." in reproduction.text()
    assert "on dev prompts" in reproduction.text()


def test_another_budget_would_be_chosen_on_the_evaluation_prompts(judged: Trace, folder: Path, tmp_path: Path) -> None:
    """Dev prompts of which the chain drafts all, so that a larger tree only costs; and prices that hardly rise."""
    heads = SyntheticHeads(first_acceptance=1.0, decay=1.0, peak=30.0, tie_share=0.0)
    sure, cost = right_trace(tmp_path / "sure", 3, heads), tmp_path / "flat.json"
    flat = read_cost_file(folder / "cost.json")
    samples = {cell: (0.01 * (1 + 0.0001 * cell[1]),) * 3 for cell in flat.samples}
    write_cost_file(cost, replace(flat, samples=samples))
    reproduction = reproduce("ddtree-gsm8k", traces=[judged], dev_trace=sure, cost=cost)
    value = value_of(reproduction)
    assert (value["chosen"], value["chosen_on_evaluation"]) == ("ddtree:budget=16", "ddtree:budget=64")
    assert {row["policy"] for row in value["rows"]} == {"chain", "ddtree:budget=16"}
    assert "as theirs was, it would be ddtree:budget=64." in reproduction.text()


def test_a_budget_needs_prices_and_other_prompts(judged: Trace, trace: Path, folder: Path, tmp_path: Path) -> None:
    cost = folder / "cost.json"
    for dev, priced, said in (
        (right_trace(tmp_path / "dev", 4), None, "needs a latency profile"),
        (judged, cost, "12 prompts of --dev-trace are among those of --trace"),
        (trace, cost, "different models or blocks"),
    ):
        assert said in refused(reproduce, "ddtree-gsm8k", traces=[judged], dev_trace=dev, cost=priced)


# --- the list, and what is typed


@pytest.mark.parametrize(
    ("name", "more"), [("zlab-166", ()), ("ddtree-gsm8k", ()), ("ddtree-gsm8k", ("--trace", "x"))], ids=str
)
def test_without_a_trace_it_says_what_is_missing_and_what_to_type(name: str, more: tuple[str, ...]) -> None:
    code, out, err = ran("study", "reproduce", name, *more)
    assert (code, out) == (2, "")
    sentence, *commands = err.splitlines()
    assert sentence.startswith(f"simlab: `{name}` is not yet run by us: it needs ")
    assert [line.strip() for line in commands] == list(PUBLISHED[name].commands)


@pytest.mark.parametrize("line", [line for study in PUBLISHED.values() for line in study.commands])
def test_the_commands_can_be_typed(line: str) -> None:
    """Lines that begin with # say what a file holds; its example is JSON."""
    if line.startswith("#"):
        if "{" in line:
            assert json.loads(line[line.index("{") :])["dataset"] == "gsm8k"
        return
    program, *arguments = shlex.split(line)
    assert program == "simlab"
    options = command_line.parser_for(*arguments[:2]).parse_args(arguments)
    assert isinstance(options, argparse.Namespace)
