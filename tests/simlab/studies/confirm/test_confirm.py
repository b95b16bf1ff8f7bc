"""Confirmations on tiny models: the summary beside a replay and the result rows, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_models
from confirm_runs import LABELS, Made, make, setup_of
from made_up_costs import filled
from study_results import refused, rows_of, value_of

import simlab
from simlab.cost import STAGES
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm import confirm as runs
from simlab.real_runner.confirm.log import ROUND_COLUMNS
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.models import Models
from simlab.real_runner.profile.rounds import setting_of
from simlab.studies.confirm import run
from simlab.studies.confirm.confirm import confirm
from simlab.studies.confirm.confirmation import Confirmation, RunFacts
from simlab.studies.confirm.run import _timed
from simlab.studies.result import with_settings
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.format.documents import with_digest
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results

POLICY, BOUND = "ddtree:budget=8", "hindsight:budget=8"
WHERE = ("draft", "channel", "select", "verify", "commit")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("confirm"))


@pytest.fixture(scope="module")
def prices(made: Made) -> CostFile:
    """Made-up prices of just these models on this machine."""
    setup = setup_of(made, ConfirmOptions(made.folder / "unused"))
    file = setting_of(setup.models, "d", "float32", "cpu", setup.sampling)
    return filled(replace(file, contexts=(16, 512), node_counts=(0, 8, 16), repeats=3))


def confirmed(made: Made, out: Path, *policies: str, **more: object) -> Confirmation:
    return confirm(made.trace, [POLICY, *policies], out=out, **more)  # type: ignore[arg-type]


def test_a_policy_may_be_an_object(made: Made, prices: CostFile, tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, prices)
    found = confirm(made.trace, [Chain(2), DDTree(budget=4)], out=tmp_path / "objects", cost=path)
    typed = confirm(made.trace, ["chain:length=2", "ddtree:budget=4"], out=tmp_path / "typed", cost=path)
    assert [(one.policy, one.predicted.policy_id) for one in found.policies] == [
        (one.policy, one.predicted.policy_id) for one in typed.policies
    ]
    predicted, measured = found.plot().data
    assert (predicted.name, measured.name) == ("predicted", "measured")
    assert list(measured.y) == [one.policy for one in found.policies if one.measured is not None]


def refusal(made: Made, out: Path, *policies: str, **more: object) -> str:
    """The sentence of a refusal before which nothing was run."""
    said = refused(confirmed, made, out, *policies, **more)
    assert not (out / "log.jsonl").exists()
    return said


def test_a_row_has_both_sides(made: Made, prices: CostFile, tmp_path: Path) -> None:
    path, out = tmp_path / "cost.json", tmp_path / "out"
    write_cost_file(path, prices)
    found = confirmed(made, out, cost=path)
    value, rows = value_of(found), rows_of(found)
    assert {file.name for file in out.iterdir()} == {"log.jsonl", "results.parquet", "confirm.json"}
    assert found.frame.to_dicts() == with_settings(value["rows"])
    assert with_digest(value) == json.loads((out / "confirm.json").read_text())
    assert (value["text_id"], value["cost"]) == (made.trace.text_id, prices.cost_id)
    assert list(rows) == [*LABELS, BOUND]
    replayed = rows_of(simlab.replay(made.trace, [POLICY], cost=path))
    for label, row in rows.items():
        assert {key: row[key] for key in replayed[label]} == replayed[label]
        assert row["predicted_speedup"] == row["speedup"] is not None
        assert row["predicted_verify_s_per_round"] == pytest.approx(row["verify_s"] / row["rounds"])
    for label in LABELS:
        row = rows[label]
        assert (row["counts_equal_replay"], row["num_equal"], row["num_texts"]) == (True, 6, 6)
        assert (row["lossless"], row["num_ties"]) == ("exact", 0)
        assert 0 <= row["worst_gap"] <= row["bound"]
        assert row["measured_acceptance_length"] == row["acceptance_length"]
        for name in ("measured_speedup", "measured_tokens_per_s"):
            assert row[f"{name}_ci_low"] <= row[name] <= row[f"{name}_ci_high"]
        assert row["error_speedup"] == pytest.approx(row["predicted_speedup"] / row["measured_speedup"] - 1)
        assert row["error_tokens_per_s"] == pytest.approx(row["tokens_per_s"] / row["measured_tokens_per_s"] - 1)
    assert value["prices"]["key_match"] is True
    assert (value["rank_agreement"]["policies"], value["rank_agreement"]["pairs"]) == (3, 3)
    assert rows["autoregressive"]["measured_speedup"] == 1
    assert rows[BOUND]["measured_speedup"] is None
    # The result rows say what the summary says.
    kinds = {
        kind: part for (kind,), part in read_results(out / "results.parquet").partition_by("kind", as_dict=True).items()
    }
    assert (kinds["predicted"].height, kinds["measured"].height) == (4 * 6, 3 * 6)
    for label in LABELS:
        for kind, prefix in (("predicted", ""), ("measured", "measured_")):
            own = kinds[kind].filter(policy=label)
            seconds = sum(float(own[f"{stage}_s"].sum()) for stage in WHERE)
            assert rows[label][f"{prefix}tokens_per_s"] == pytest.approx(float(own["committed"].sum()) / seconds)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threads": 64}, "measured with threads 64, and this run has 1"),
        ({"dtype": "bfloat16"}, "measured with dtype bfloat16, and this run has float32"),
        ({"temperature": 0.5}, "measured with temperature 0.5, and this run has 0"),
        ({"versions": {"torch": "1.0"}}, "measured with versions torch 1.0, and this run has"),
        ({"device": "Other CPU"}, "measured with device Other CPU, and this run has"),
        ({"block_size": 16}, "measured with block size 16, and this run has 4"),
        ({"contexts": (16, 17), "samples": {}}, "give latencies at longer contexts"),
    ],
)
def test_other_prices_are_refused(
    made: Made, prices: CostFile, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file = replace(prices, **changes)
    write_cost_file(tmp_path / "cost.json", file if file.samples else filled(file))
    assert said in refusal(made, tmp_path / "out", cost=tmp_path / "cost.json")


def test_prompts_beyond_the_contexts_of_a_cost_file_are_left_out_as_a_replay_does(
    made: Made, prices: CostFile, tmp_path: Path
) -> None:
    longest: dict[str, int] = {}
    for record in made.trace.sequences():
        last = len(record.prompt.token_ids) + len(record.text) - 2
        longest[record.prompt.prompt_id] = max(last, longest.get(record.prompt.prompt_id, 0))
    reach = min(longest.values())
    left_out = sum(last > reach for last in longest.values())
    assert 0 < left_out < len(longest)
    path = tmp_path / "cost.json"
    write_cost_file(path, filled(replace(prices, contexts=(2, reach), samples={})))
    found = confirmed(made, tmp_path / "out", cost=path)
    assert f"Prompts left out: {left_out} of {len(longest)}, which have more than {reach} tokens" in " ".join(
        found.text().split()
    )
    replayed, rows = rows_of(simlab.replay(made.trace, [POLICY], cost=path)), rows_of(found)
    assert rows[POLICY]["num_texts"] == 2 * (len(longest) - left_out)
    for label, row in rows.items():
        assert {key: row[key] for key in replayed[label]} == replayed[label]
    said = refused(confirmed, made, tmp_path / "out", resume=True)
    assert "texts within the contexts of --cost" in said
    again = confirmed(made, tmp_path / "out", cost=path, resume=True)
    assert rows_of(again)[POLICY]["num_texts"] == rows[POLICY]["num_texts"]


@pytest.mark.parametrize(
    ("policies", "named", "said"),
    [
        ((), {"prompts": "p.jsonl"}, "not both"),
        (("ddtree:budget=513",), {}, "--exact-budget 1024"),
        ((), {"target": "smollm2-absent"}, "the target 'smollm2-absent' could not be"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    made: Made, policies: tuple[str, ...], named: dict[str, object], said: str, tmp_path: Path
) -> None:
    assert said in refusal(made, tmp_path / "out", *policies, **named)


def test_other_models_are_refused(made: Made, tmp_path: Path) -> None:
    target, drafter = tiny_models.make_pair(tmp_path, seed=7)
    longer = tiny_models.make_drafter(tmp_path / "longer", block_size=6)
    for kind, path in (("target", target), ("draft", drafter), ("draft", longer)):
        assert f"was recorded with the {kind}" in refusal(made, tmp_path / "out", **{kind: str(path)})


def with_config(made: Made, folder: Path, file: str, **fields: object) -> str:
    """The same target with other fields of a configuration."""
    target = shutil.copytree(made.folder / "target", folder / "target")
    (target / file).write_text(json.dumps(json.loads((target / file).read_text()) | fields))
    return str(target)


def test_a_text_longer_than_the_context_is_refused(made: Made, tmp_path: Path) -> None:
    target = with_config(made, tmp_path, "config.json", max_position_embeddings=48)
    assert "it needs" in refusal(made, tmp_path / "out", target=target)


def test_stop_tokens_are_those_of_the_trace(made: Made, tmp_path: Path) -> None:
    """This target would now stop at a token that is in the recorded texts."""
    common = int(made.trace.sequences()[0].text[3])
    target = with_config(made, tmp_path, "generation_config.json", eos_token_id=[common])
    value = value_of(confirmed(made, tmp_path / "out", target=target))
    assert [one for one in value["differences"] if one["kind"] == "text"] == []
    assert value["rows"][0]["measured_acceptance_length"] == 1
    measured = read_results(tmp_path / "out" / "results.parquet").filter(kind="measured", name="ar")
    assert measured["committed"].to_list() == [len(record.text) - 1 for record in made.trace.sequences()]


def test_given_text_is_refused(made: Made, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"prompt": "why?", "completion": "a root"}) + "\n")
    target, draft = made.models[1::2]
    given = simlab.record(target, draft, completions=texts, out=tmp_path / "given")
    assert "were made elsewhere" in refused(confirm, given, out=tmp_path / "out")


def test_a_channel_is_refused_before_any_model_is_loaded(made: Made, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from simlab import ChannelNeed, DraftTree, Needs, Stateless\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Stateless):\n"
        "    needs = Needs(channels=(ChannelNeed('pool', 'pool'),))\n"
        "    budget = 3\n"
        "    def select(self, draft, state=None):\n"
        "        return DraftTree.root_only(draft.root_token)\n"
    )
    assert "reads the channel pool" in refusal(made, tmp_path / "out", f"{mine}:Mine", target="absent")


def test_prompts_are_recorded_first(made: Made, tmp_path: Path) -> None:
    """With the sampling, dtype, widths and limit that were asked for; a second turn is the trace's."""
    target, draft = made.models[1::2]
    asked: dict[str, Any] = {"prompts": made.folder / "prompts.jsonl", "target": target, "draft": draft, "limit": 2}
    asked |= {"temperature": 0.9, "seed": 5, "max_new_tokens": 8, "out": tmp_path}
    value = value_of(confirm(None, ["ddtree:budget=600"], **asked))
    trace = open_trace(tmp_path / "trace")
    assert value["text_id"] == trace.text_id
    assert (trace.manifest.sampling.temperature, trace.manifest.sampling.seed) == (0.9, 5)
    assert trace.manifest.max_new_tokens == 8
    assert trace.manifest.draft_sets[trace.draft_name()].exact_budget == 600
    assert {row["num_texts"] for row in value["rows"]} == {4, None}
    assert "add --resume" in refused(confirm, None, ["ddtree:budget=600"], **asked)
    assert value_of(confirm(None, ["ddtree:budget=600"], **asked, resume=True)) == value


def test_prompts_for_the_packaged_models_have_what_ships_with_them(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices, tables and counts, before anything is recorded; for other models a sentence says what to do."""
    asked: list[NamedPolicy] = []

    def noted(policies: list[NamedPolicy], _options: object) -> None:
        asked.extend(policies)
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.confirm.confirm._recorded", noted)
    prompts, out = made.folder / "prompts.jsonl", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        confirm(None, ["caddtree", "sequoia", "presto"], prompts=prompts, out=out)
    assert [sorted(getattr(policy.policy, "artefacts", ())) for policy in asked[2:]] == [["cost"], ["ranks"], ["ngram"]]
    target, draft = made.models[1::2]
    for one, said in (("caddtree", "--cost"), ("sequoia", "table=FILE"), ("presto", "ngram=FILE")):
        assert said in refused(confirm, None, [one], prompts=prompts, out=out, target=target, draft=draft)


def test_a_fault_is_a_failure_that_stands_first(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(models: Models, policy: AnyPolicy, *arguments: Any) -> DecodedText:  # noqa: ANN401
        decoded = decode(models, policy, *arguments)
        return replace(decoded, text=decoded.text[:-1]) if policy.budget == 8 else decoded

    monkeypatch.setattr(runs, "decode", faulty)
    found = confirmed(made, tmp_path / "out", limit=1)
    assert found.has_failed
    first, second = found.verdict.splitlines()[:2]
    assert first.startswith("FAILED: the text of ddtree:budget=8 is not the target's: prompt 'p0', turn 0")
    assert second.startswith("FAILED: 2 of 2 texts of ddtree:budget=8 had other rounds than the replay")
    assert " ".join(found.text().split()).startswith(f"{first} {second}")


def test_the_packaged_trace_and_its_models_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def noted(options: ConfirmOptions, trace: Trace, policies: list[NamedPolicy], *others: object) -> None:
        asked.append((options, trace.manifest.target.name, [policy.label for policy in policies], *others))
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.confirm.confirm.run_confirmation", noted)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        confirm()
    labels = ["autoregressive", "chain", "ddtree:budget=16"]
    assert asked == [(ConfirmOptions(Path("runs/confirm")), "smollm2-135m", labels, None, (), None, None, None)]


def test_a_run_that_ended_early_says_what_was_asked_for() -> None:
    ran = RunFacts({}, {}, 3, 7, "interval", 0.025, 0.03, None)
    said = "the intervals are tight: 3 prompts, 7 runs of a prompt; widest interval of a speed ratio ±2.5 %"
    assert ran.text() == f"{said} (asked for: 3 %)"


# --- the rounds of a run as they are held against a latency profile


def run_of(policy_id: str, positions: list[int], drafted: list[int]) -> Any:  # noqa: ANN401
    """A run whose rounds took 1, 2, ... microseconds in each stage."""
    rounds = np.zeros((len(positions), len(ROUND_COLUMNS)), np.int64)
    rounds[:, ROUND_COLUMNS.index("position")] = positions
    rounds[:, ROUND_COLUMNS.index("drafted")] = drafted
    for index, stage in enumerate(STAGES):
        rounds[:, ROUND_COLUMNS.index(f"{stage}_us")] = 1 + index
    return SimpleNamespace(policy_id=policy_id, rounds=rounds)


def test_contexts_are_behind_the_prompt_and_seconds_those_of_the_log() -> None:
    prompts = [
        SimpleNamespace(index=index, prompt=SimpleNamespace(token_ids=np.zeros(n))) for index, n in ((7, 100), (9, 30))
    ]
    sequences: Any = [
        SimpleNamespace(index=9, runs=[run_of("a", [0, 4], [3, 2]), run_of("b", [5], [1])]),
        SimpleNamespace(index=7, runs=[run_of("a", [6], [8])]),
    ]
    setup: Any = SimpleNamespace(records=prompts)
    found = _timed(setup, sequences, "a")
    assert found.texts.tolist() == [0, 0, 1]
    assert found.contexts.tolist() == [30, 34, 106]
    assert found.num_drafted.tolist() == [3, 2, 8]
    np.testing.assert_allclose(found.seconds, [[1e-6 * (1 + place) for place in range(len(STAGES))]] * 3)
    assert len(_timed(setup, sequences, "c").texts) == 0


def test_a_profile_of_another_setting_is_refused_before_any_model_is_loaded(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "load_setup", lambda *_: pytest.fail("models were loaded"))
    said = refusal(made, tmp_path / "out", "chain", cost="smollm2-135m-epyc-float32", threads=1)
    assert "was measured with " in said
    assert "or leave --cost out" in said
