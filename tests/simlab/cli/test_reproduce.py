"""Published figures beside ours: the statistics by hand, what differs named, and both ends of the command."""

import argparse
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import json_of, output_of, ran, refusal_of
from made_up_costs import EMPTY, filled

from simlab.analysis.compare.averaging import both_means, find_ranking_flips
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.cli import main as command_line
from simlab.studies.reproduce.ddtreepp_rounds import read_released
from simlab.studies.reproduce.of_traces import DIFFERS, EQUAL, NOT_KNOWN, ON_PURPOSE, checks_of_trace
from simlab.studies.reproduce.published import DDTREE_GSM8K, PUBLISHED, ZLAB_166, PublishedStudy
from simlab.studies.reproduce.reproduce import RELEASED
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results
from simlab.traces.synthetic import (
    DEFAULT_HEADS,
    DRAFT,
    SyntheticHeads,
    shards_of,
    synthetic_manifest,
    synthetic_sequences,
    write_synthetic_trace,
)
from simlab.traces.writer import TraceWriter


def said(*arguments: str) -> dict[str, Any]:
    return json_of("study", "reproduce", "--json", *arguments)


# --- released rounds


def test_the_released_rounds_are_those_described() -> None:
    rounds = read_released()
    assert rounds.height == 4392
    assert sorted(set(rounds["sample_index"])) == list(range(128))
    assert (rounds["num_committed"].min(), rounds["num_committed"].max()) == (1, 16)
    for _, part in rounds.group_by("sample_index", maintain_order=True):
        assert part["round_index"].to_list() == list(range(part.height))


def test_their_statistics_by_hand() -> None:
    rows = list(read_released().iter_rows(named=True))
    committed = [row["num_committed"] for row in rows]
    texts: dict[int, list[int]] = {}
    for row in rows:
        texts.setdefault(row["sample_index"], []).append(row["num_committed"])
    pooled = sum(committed) / len(committed)
    macro = sum(sum(one) / len(one) for one in texts.values()) / len(texts)
    assert (round(pooled, 3), round(macro, 3)) == (8.684, 8.823)
    value = said("ddtreepp-rounds")
    assert value["acceptance_length"] == pytest.approx(pooled)
    assert value["acceptance_length_macro"] == pytest.approx(macro)
    assert value["macro_over_pooled"] == pytest.approx(macro / pooled)
    assert value["acceptance_length_ci_low"] < pooled < value["acceptance_length_ci_high"] < 9.08
    assert 0.99 < value["macro_over_pooled_ci_low"] < macro / pooled < value["macro_over_pooled_ci_high"]
    seconds = sum(row["latency_ms"] for row in rows) / 1000
    assert value["tokens_per_s"] == pytest.approx(sum(committed) / seconds, rel=1e-6)
    assert value["whole_block_share"] == pytest.approx(sum(one == 16 for one in committed) / len(committed))
    assert value["least_accepted_per_verified"] == pytest.approx(
        (sum(committed) - len(committed)) / (129 * len(committed))
    )
    assert value["theirs"][0]["value"] == 8.68
    assert sum(row["rounds"] for row in value["rows"]) == len(rows)
    for row in value["rows"]:
        own = [one["num_committed"] for one in rows if one["action_name"] == row["run"]]
        assert row["acceptance_length"] == pytest.approx(sum(own) / len(own))
    first, pair = value["rows"][0]["run"], value["comparisons"][0]
    shared = {one["sample_index"] for one in rows if one["action_name"] == pair["second"]} & {
        one["sample_index"] for one in rows if one["action_name"] == first
    }
    assert (pair["first"], pair["prompts"]) == (first, len(shared))
    means = [
        [one["num_committed"] for one in rows if one["action_name"] == name and one["sample_index"] in shared]
        for name in (first, pair["second"])
    ]
    assert pair["ratio"] == pytest.approx(sum(means[0]) / len(means[0]) / (sum(means[1]) / len(means[1])))


def test_the_text_says_which_mean_theirs_is() -> None:
    text = output_of("study", "reproduce", "ddtreepp-rounds")
    assert "8.68 is the pooled mean" in text
    assert "9.08 lies above both intervals" in text
    assert "no paired comparison can be made" in text
    assert "4,392 rounds of 128 prompts" in text


# --- the two means


def run_of(name: str, texts: dict[str, tuple[int, int]]) -> PolicyRun:
    """A run from (tokens, rounds) of each prompt."""
    rows = pl.DataFrame(
        [
            {"dataset": "d", "prompt_id": prompt, "turn": 0, "sample": 0, "committed": tokens, "rounds": rounds}
            for prompt, (tokens, rounds) in texts.items()
        ]
    )
    rows = rows.with_columns(
        *(pl.lit(1.0).alias(stage) for stage in ("draft_s", "channel_s", "select_s", "verify_s", "commit_s"))
    )
    rows = rows.with_columns(cost_id=pl.lit(None, pl.String), draws_s=pl.lit(None, pl.List(pl.Float32)))
    return PolicyRun(name, rows, rows.clear())


def test_a_flip_is_found_and_told_where_it_can_be() -> None:
    """The first policy is better on the few long texts, the second on the many short ones."""
    long, short = [f"l{n}" for n in range(10)], [f"s{n}" for n in range(40)]
    first = run_of("first", {**dict.fromkeys(long, (400, 100)), **dict.fromkeys(short, (20, 10))})
    second = run_of("second", {**dict.fromkeys(long, (400, 120)), **dict.fromkeys(short, (20, 8))})
    (found,) = find_ranking_flips([first, second])
    assert found.pooled.ratio == pytest.approx((4800 / 1400) / (4800 / 1520))
    assert found.pooled.ratio > 1 > found.macro.ratio
    macros = [(10 * 4 + 40 * 2) / 50, (10 * 400 / 120 + 40 * 20 / 8) / 50]
    assert found.macro.ratio == pytest.approx(macros[0] / macros[1])
    assert found.is_certain
    means = both_means(first)
    assert [means.pooled, means.macro] == pytest.approx([4800 / 1400, macros[0]])
    assert means.over == pytest.approx(means.macro / means.pooled)
    assert means.pooled_interval.low < means.pooled < means.pooled_interval.high
    assert means.macro_interval.low < means.macro < means.macro_interval.high
    same = run_of("same", {**dict.fromkeys(long, (400, 100)), **dict.fromkeys(short, (20, 10))})
    assert find_ranking_flips([first, same]) == []
    assert find_ranking_flips([first]) == []


def test_averaging_on_several_traces(tmp_path: Path) -> None:
    trace, out = write_synthetic_trace(tmp_path / "trace", num_sequences=12, length=30), tmp_path / "rows.parquet"
    policies = ["-p", "chain", "-p", "ddtree:budget=4/16"]
    value = said("averaging", "--trace", str(trace), "--limit", "3", *policies)
    text_id = open_trace(trace).text_id
    mine = {row["run"]: row for row in value["rows"] if row["text_id"] == text_id}
    assert list(mine) == ["chain", "ddtree:budget=4", "ddtree:budget=16"]
    assert len({row["place"] for row in value["rows"]}) == 3
    assert value["rows"][-1]["acceptance_length"] == pytest.approx(8.684, abs=1e-3)
    output_of("replay", "--trace", trace, "--limit", "3", *policies, "--out", out)
    for label, row in mine.items():
        texts = [(one["committed"], one["rounds"]) for one in read_results(out).filter(policy=label).to_dicts()]
        pooled = sum(one for one, _ in texts) / sum(one for _, one in texts)
        own = [tokens / rounds for tokens, rounds in texts if rounds]
        assert row["acceptance_length"] == pytest.approx(pooled)
        assert row["acceptance_length_macro"] == pytest.approx(sum(own) / len(own))
    text = output_of("study", "reproduce", "averaging", "--limit", "2", *policies)
    assert "6.11" in text
    assert "Fewer than 20 prompts" in text


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


def right_trace(folder: Path, seed: int, heads: SyntheticHeads = DEFAULT_HEADS, num_sequences: int = 12) -> Path:
    records = [
        replace(record, prompt=replace(record.prompt, dataset="gsm8k", prompt_id=f"{seed}-{record.index}", turn=0))
        for record in synthetic_sequences(seed, num_sequences, 40, depth=15, heads=heads)
    ]
    shards = list(shards_of(records, 4))
    writer = TraceWriter(folder, right_manifest(), len(shards), resume=False)
    for number, part in enumerate(shards):
        writer.write(number, part)
    writer.finish({})
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reproduce")
    cost = folder / "cost.json"
    target, drafter = right_manifest().target, right_manifest().draft_sets[DRAFT].model
    write_cost_file(cost, filled(replace(EMPTY, target=target, drafter=drafter, block_size=16)))
    traces = {name: str(right_trace(folder / name, seed)) for name, seed in (("trace", 1), ("dev", 2))}
    return {**traces, "cost": str(cost)}


def states(
    manifest: Manifest, dataset: str = "gsm8k", num: int = 128, published: PublishedStudy = DDTREE_GSM8K
) -> dict[str, str]:
    found = checks_of_trace(published, manifest, DRAFT, [dataset], num)
    return {one["what"]: one["state"] for one in found}


def test_a_trace_of_what_they_had_is_equal_in_all_it_shows() -> None:
    found = states(right_manifest(2048))
    assert {what for what, state in found.items() if state == NOT_KNOWN} == {"dtype", *DDTREE_GSM8K.not_known}
    assert {what for what, state in found.items() if state == ON_PURPOSE} == set(DDTREE_GSM8K.on_purpose)
    assert DIFFERS not in found.values()
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


@pytest.mark.parametrize("what", OTHERS)
def test_each_thing_that_differs_is_named(what: str) -> None:
    found = states(OTHERS[what](right_manifest(2048)))
    assert [name for name, state in found.items() if state == DIFFERS] == [what]


def test_other_prompts_are_named() -> None:
    manifest = right_manifest(2048)
    assert states(manifest, dataset="mbpp")["dataset"] == DIFFERS
    assert states(manifest, num=127)["number of prompts"] == DIFFERS
    thinking = replace(manifest, chat_template_kwargs={"enable_thinking": True})
    assert states(thinking, published=ZLAB_166)["thinking"] == DIFFERS
    with pytest.raises(ValueError, match="of no trace"):
        checks_of_trace(PUBLISHED["averaging"], manifest, DRAFT, ["gsm8k"], 1)


def test_the_chain_of_a_trace_of_the_right_models(places: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    output_of("replay", "--trace", places["trace"], "-p", "chain", "--out", out)
    texts = read_results(out).filter(policy="chain").to_dicts()
    value = said("zlab-166", "--trace", places["trace"])
    macro, pooled = value["rows"]
    assert (macro["theirs"], pooled["theirs"]) == (6.39, 6.28)
    assert pooled["ours"] == pytest.approx(sum(one["committed"] for one in texts) / sum(one["rounds"] for one in texts))
    own = [one["committed"] / one["rounds"] for one in texts if one["rounds"]]
    assert macro["ours"] == pytest.approx(sum(own) / len(own))
    assert macro["difference_share"] == pytest.approx(macro["ours"] / 6.39 - 1)
    assert macro["within_interval"] is False
    assert value["differing"] == []
    assert "All that the trace can show is equal." in output_of(
        "study", "reproduce", "zlab-166", "--trace", places["trace"]
    )


def test_the_budget_is_chosen_on_dev_prompts(places: dict[str, str]) -> None:
    arguments = ["--trace", places["trace"], "--dev-trace", places["dev"], "--cost", places["cost"]]
    value = said("ddtree-gsm8k", *arguments)
    dev = {row["policy"]: row["tokens_per_s"] for row in value["dev_budgets"]}
    assert list(dev) == [f"ddtree:budget={budget}" for budget in (16, 32, 64)]
    assert value["chosen"] == max(dev, key=lambda one: dev[one])
    replayed = {
        row["policy"]: row
        for row in json_of("replay", *arguments[:2], *arguments[4:], "-p", value["chosen"], "--json")["rows"]
    }
    for row in value["rows"]:
        assert row["ours"] == pytest.approx(replayed[row["policy"]][row["measure"]])
    assert [row["theirs"] for row in value["rows"]] == [6.57, 9.54, 4.78, 6.75]
    assert [row["policy"] for row in value["rows"]] == ["chain", value["chosen"]] * 2
    assert value["differing"] == ["new tokens, at most", "number of prompts", "budgets tried"]
    text = output_of("study", "reproduce", "ddtree-gsm8k", *arguments)
    assert "Not a reproduction: 3 of what must be equal" in text
    assert "on dev prompts" in text


def test_another_budget_would_be_chosen_on_the_evaluation_prompts(places: dict[str, str], tmp_path: Path) -> None:
    """Dev prompts of which the chain drafts all, so that a larger tree only costs; and prices that hardly rise."""
    sure = right_trace(tmp_path / "sure", 3, SyntheticHeads(first_acceptance=1.0, decay=1.0, peak=30.0, tie_share=0.0))
    flat, cost = read_cost_file(Path(places["cost"])), tmp_path / "flat.json"
    samples = {cell: (0.01 * (1 + 0.0001 * cell[1]),) * 3 for cell in flat.samples}
    write_cost_file(cost, replace(flat, samples=samples))
    arguments = ["--trace", places["trace"], "--dev-trace", str(sure), "--cost", str(cost)]
    value = said("ddtree-gsm8k", *arguments)
    assert (value["chosen"], value["chosen_on_evaluation"]) == ("ddtree:budget=16", "ddtree:budget=64")
    assert {row["policy"] for row in value["rows"]} == {"chain", "ddtree:budget=16"}
    assert "as theirs was, it would be ddtree:budget=64." in output_of("study", "reproduce", "ddtree-gsm8k", *arguments)


# --- the command


def test_the_list_says_what_runs() -> None:
    value = said()
    found = {row["name"]: row["state"] for row in value["rows"]}
    assert found == {
        "ddtreepp-rounds": "runs here",
        "averaging": "runs here",
        "zlab-166": "not yet run by us",
        "ddtree-gsm8k": "not yet run by us",
        "eliran-online": "not yet run by us",
        **dict.fromkeys(RELEASED.keys() - {"eliran-online"}, "fetches its files"),
    }
    assert set(found) == set(PUBLISHED)
    text = output_of("study", "reproduce")
    assert all(name in text for name in PUBLISHED)


@pytest.mark.parametrize("name", ["zlab-166", "ddtree-gsm8k"])
def test_without_a_trace_it_says_what_is_missing_and_what_to_type(name: str) -> None:
    code, out, err = ran("study", "reproduce", name)
    assert (code, out) == (2, "")
    sentence, *commands = err.splitlines()
    assert sentence.startswith(f"simlab: `{name}` is not yet run by us: it needs ")
    assert [line.strip() for line in commands] == list(PUBLISHED[name].commands)


@pytest.mark.parametrize("line", [line for one in PUBLISHED.values() for line in one.commands])
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["other"], "there are ddtreepp-rounds, averaging, zlab-166, ddtree-gsm8k"),
        (["ddtreepp-rounds", "--trace", "x"], "--trace says nothing to ddtreepp-rounds"),
        (["zlab-166", "--trace", "x", "--trace", "y"], "takes one --trace"),
        (["zlab-166", "--trace", "/does/not/exist"], "/does/not/exist"),
        (["zlab-166", "--trace", "x", "--dev-trace", "y"], "--dev-trace says nothing to zlab-166"),
        (["--limit", "3"], "--limit says nothing to the list"),
        (["averaging", "-p", "nothing"], "no policy `nothing`"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], told: str) -> None:
    assert told in refusal_of("study", "reproduce", *arguments)


def test_a_budget_needs_prices_and_other_prompts(places: dict[str, str], tmp_path: Path) -> None:
    both = ["ddtree-gsm8k", "--trace", places["trace"], "--dev-trace"]
    assert "needs a latency profile" in refusal_of("study", "reproduce", *both, places["dev"])
    assert "12 prompts of --dev-trace are among those of --trace" in refusal_of(
        "study", "reproduce", *both, places["trace"], "--cost", places["cost"]
    )
    other = write_synthetic_trace(tmp_path / "other", seed=9, num_sequences=2, length=12)
    assert "different models or blocks" in refusal_of("study", "reproduce", *both, other, "--cost", places["cost"])
