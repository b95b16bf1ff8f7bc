"""``simlab confirm`` from end to end on tiny models, and its mistakes."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from commands import json_of, output_of, refusal_of
from confirm_runs import LABELS, Made, make, setup_of
from made_up_costs import filled

from simlab.cli.main import main
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm import confirm
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.models import Models
from simlab.real_runner.profile.rounds import setting_of
from simlab.studies.confirm.confirmation import SummaryContext
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.format.documents import with_digest
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results

WHERE = ("draft", "channel", "select", "verify", "commit")
STAGES = tuple(f"{stage}_s" for stage in WHERE)
OF_CONFIRM = {
    "num_same_texts",
    "measured_acceptance_length",
    "measured_tokens_per_s",
    "measured_tokens_per_s_ci_low",
    "measured_tokens_per_s_ci_high",
    "measured_speedup",
    "measured_speedup_ci_low",
    "measured_speedup_ci_high",
    "predicted_speedup",
    "counts_equal_replay",
    "num_equal",
    "num_texts",
    "lossless",
    "num_ties",
    "worst_gap",
    "bound",
    *(f"{kind}_{stage}_per_round" for kind in ("predicted", "measured") for stage in STAGES),
    "within_tolerance",
    "within_noise",
    "error_speedup_price_low",
    "error_speedup_price_high",
    "log_error_machine",
    *(f"{kind}_{part}" for kind in ("log_error", "error_share") for part in ("rounds", *WHERE)),
    *(
        f"error_{name}{end}"
        for name in (
            "acceptance_length",
            "round_s",
            "tokens_per_s",
            "speedup",
            *(f"{one}_s_per_round" for one in WHERE),
        )
        for end in ("", "_ci_low", "_ci_high")
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("command"))


@pytest.fixture(scope="module")
def cost(made: Made) -> CostFile:
    """Made-up prices of just these models on this machine."""
    setup = setup_of(made, ConfirmOptions(made.folder / "unused"))
    file = setting_of(setup.models, "d", "float32", "cpu", setup.sampling)
    return filled(replace(file, contexts=(16, 512), node_counts=(0, 8, 16), repeats=3))


def typed(made: Made, out: Path, *more: str) -> list[str]:
    return ["confirm", "--trace", str(made.folder / "trace"), "-p", "ddtree:budget=8", "--out", str(out), *more]


def test_the_verdict_comes_first(made: Made, tmp_path: Path) -> None:
    text = output_of(*typed(made, tmp_path / "out"))
    first = text.splitlines()[0]
    assert " is faster than " in first or first.startswith("No winner ")
    for part in (
        str(made.folder / "trace"),
        "3 prompts, 6 sequences",
        "6 of 6",
        "ms per round, predicted / measured",
        "Nothing is predicted: simlab ships no latency profile for exactly these models",
        "Fewer than 20 prompts",
        "hindsight:budget=8",
        "on the texts of autoregressive decoding",
    ):
        assert part in text
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"log.jsonl", "results.parquet", "confirm.json"}


def test_a_script_reads_both_sides(made: Made, cost: CostFile, tmp_path: Path) -> None:
    path, out = tmp_path / "cost.json", tmp_path / "out"
    write_cost_file(path, cost)
    value = json_of(*typed(made, out, "--cost", str(path), "--json"))
    assert with_digest(value) == json.loads((out / "confirm.json").read_text())
    assert (value["text_id"], value["cost"]) == (made.trace.text_id, cost.cost_id)
    assert value["draft_ids"] == dict(made.trace.draft_ids)
    rows: dict[str, dict[str, Any]] = {row["policy"]: row for row in value["rows"]}
    assert list(rows) == [*LABELS, "hindsight:budget=8"]
    replay = ["replay", "--trace", str(made.folder / "trace"), "-p", "ddtree:budget=8", "--cost", str(path), "--json"]
    replayed = {row["policy"]: row for row in json_of(*replay)["rows"]}
    for label, row in rows.items():
        assert all(found is None or isinstance(found, str | int | float) for found in row.values())
        assert {key: found for key, found in row.items() if key not in OF_CONFIRM} == replayed[label]
        assert row["predicted_speedup"] == row["speedup"] is not None
        assert row["predicted_verify_s_per_round"] == pytest.approx(row["verify_s"] / row["rounds"])
    for label in LABELS:
        row = rows[label]
        assert set(row) == OF_CONFIRM | set(replayed[label])
        assert (row["counts_equal_replay"], row["num_equal"], row["num_texts"]) == (True, 6, 6)
        assert (row["lossless"], row["num_ties"]) == ("exact", 0)
        assert 0 <= row["worst_gap"] <= row["bound"]
        assert row["measured_acceptance_length"] == row["acceptance_length"]
        for name in ("measured_speedup", "measured_tokens_per_s"):
            assert row[f"{name}_ci_low"] <= row[name] <= row[f"{name}_ci_high"]
        assert row["error_speedup"] == pytest.approx(row["predicted_speedup"] / row["measured_speedup"] - 1)
        assert row["error_tokens_per_s"] == pytest.approx(row["tokens_per_s"] / row["measured_tokens_per_s"] - 1)
        parts = sum(row[f"log_error_{part}"] for part in ("rounds", *WHERE))
        assert math.exp(parts) - 1 == pytest.approx(row["error_speedup"])
    assert value["prediction"].startswith("Prediction of the speedup of ")
    assert value["prices"] == {
        "cost_id": cost.cost_id,
        "heading": value["prices"]["heading"],
        "why_none": "",
        "key_match": True,
    }
    assert (value["rank_agreement"]["policies"], value["rank_agreement"]["pairs"]) == (3, 3)
    assert rows["autoregressive"]["measured_speedup"] == 1
    assert rows["hindsight:budget=8"]["measured_speedup"] is None
    check_rows(out, rows)


def check_rows(out: Path, rows: dict[str, dict[str, Any]]) -> None:
    """The result rows say what the summary says."""
    results = read_results(out / "results.parquet")
    kinds = {kind: part for (kind,), part in results.partition_by("kind", as_dict=True).items()}
    assert (kinds["predicted"].height, kinds["measured"].height) == (4 * 6, 3 * 6)
    for label in LABELS:
        for kind, prefix in (("predicted", ""), ("measured", "measured_")):
            of_policy = kinds[kind].filter(kinds[kind]["policy"] == label)
            seconds = sum(float(of_policy[stage].sum()) for stage in STAGES)
            assert rows[label][f"{prefix}tokens_per_s"] == pytest.approx(float(of_policy["committed"].sum()) / seconds)
    assert main(["inspect", str(out / "results.parquet")]) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threads": 64}, "measured with threads 64, and this run has 1"),
        ({"dtype": "bfloat16"}, "measured with dtype bfloat16, and this run has float32"),
        ({"temperature": 0.5}, "measured with temperature 0.5, and this run has 0"),
        ({"versions": {"torch": "1.0"}}, "measured with versions torch 1.0, and this run has"),
        ({"device": "Other CPU"}, "measured with device Other CPU, and this run has"),
        ({"block_size": 16}, "measured with block size 16, and this run has 4"),
    ],
)
def test_other_prices_are_refused(
    made: Made, cost: CostFile, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_cost_file(tmp_path / "cost.json", replace(cost, **changes))
    assert said in refusal(made, tmp_path / "out", "--cost", str(tmp_path / "cost.json"))


def test_prices_that_do_not_reach_are_refused(made: Made, cost: CostFile, tmp_path: Path) -> None:
    short = filled(replace(cost, contexts=(16, 17), samples={}))
    write_cost_file(tmp_path / "cost.json", short)
    assert "simlab profile --contexts" in refusal(made, tmp_path / "out", "--cost", str(tmp_path / "cost.json"))


def refusal(made: Made, out: Path, *more: str) -> str:
    """The one sentence of a refusal before which nothing was run."""
    said = refusal_of(*typed(made, out, *more))
    assert not (out / "log.jsonl").exists()
    return said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--temperature", "0.5"), "--temperature can change nothing about a trace"),
        (("--prompts", "p.jsonl"), "not allowed with"),
        (("-p", "ddtree:budget=513"), "--exact-budget 1024"),
        (("-p", "dtree"), "there is no policy `dtree`"),
        (("--cost", "absent.json"), "expected a cost file at absent.json"),
        (("--dtype", "int8"), "int8"),
        (("--repeats", "0"), "at least 1"),
        (("--target", "smollm2-absent"), "the target 'smollm2-absent' could not be"),
    ],
)
def test_a_mistake_is_one_sentence(made: Made, more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in refusal(made, tmp_path / "out", *more)


def test_other_models_are_refused(made: Made, tmp_path: Path) -> None:
    tiny_models.make_pair(tmp_path, seed=7)
    out = tmp_path / "out"
    said = refusal(made, out, "--target", str(tmp_path / "target"))
    assert "was recorded with the target" in said
    said = refusal(made, out, "--draft", str(tmp_path / "drafter"))
    assert "was recorded with the drafter" in said
    longer = tiny_models.make_drafter(tmp_path / "longer", block_size=6)
    assert "was recorded with the drafter" in refusal(made, out, "--draft", str(longer))


def test_a_text_longer_than_the_context_is_refused(made: Made, tmp_path: Path) -> None:
    """The same weights with fewer positions."""
    target = shutil.copytree(made.folder / "target", tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 48}))
    assert "it needs" in refusal(made, tmp_path / "out", "--target", str(target))


def test_stop_tokens_are_those_of_the_trace(made: Made, tmp_path: Path) -> None:
    """The same weights, which would now stop at a token that is in the recorded texts."""
    target = shutil.copytree(made.folder / "target", tmp_path / "target")
    config = json.loads((target / "generation_config.json").read_text())
    common = int(made.trace.sequences()[0].text[3])
    (target / "generation_config.json").write_text(json.dumps(config | {"eos_token_id": [common]}))
    value = json_of(*typed(made, tmp_path / "out", "--target", str(target), "--json"))
    assert [one for one in value["differences"] if one["kind"] == "text"] == []
    assert value["rows"][0]["measured_acceptance_length"] == 1
    measured = read_results(tmp_path / "out" / "results.parquet").filter(kind="measured", name="ar")
    assert measured["committed"].to_list() == [len(record.text) - 1 for record in made.trace.sequences()]


def test_given_text_is_refused(made: Made, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"prompt": "why?", "completion": "a root"}) + "\n")
    given = tmp_path / "given"
    output_of("record", *made.models, "--completions", texts, "--out", given)
    assert "were made elsewhere" in refusal_of("confirm", "--trace", given, "--out", tmp_path / "out")


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
    said = refusal(made, tmp_path / "out", "-p", f"{mine}:Mine", "--target", "absent")
    assert "reads the channel pool" in said


def test_prompts_are_recorded_first(made: Made, tmp_path: Path) -> None:
    """With the sampling, dtype, widths and limit that were asked for; a second turn is the trace's."""
    out = tmp_path / "out"
    command = ["confirm", "--prompts", str(made.folder / "prompts.jsonl"), *made.models, "--limit", "2"]
    command += ["-p", "ddtree:budget=600", "--temperature", "0.9", "--seed", "5", "--max-new-tokens", "8"]
    value = json_of(*command, "--out", out, "--json")
    trace = open_trace(out / "trace")
    assert value["text_id"] == trace.text_id
    assert (trace.manifest.sampling.temperature, trace.manifest.sampling.seed) == (0.9, 5)
    assert trace.manifest.max_new_tokens == 8
    assert trace.manifest.draft_sets[trace.draft_name()].exact_budget == 600
    assert {row["num_texts"] for row in value["rows"]} == {4, None}
    assert "add --resume" in refusal_of(*command, "--out", out)
    assert json_of(*command, "--out", out, "--json", "--resume") == value


def test_prompts_for_the_packaged_models_find_what_ships_with_them(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices, tables and counts, before anything is recorded; for other models a sentence says what to do."""
    asked: list[NamedPolicy] = []

    def noted(_prompts: Path, policies: list[NamedPolicy], *_others: object) -> None:
        asked.extend(policies)
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.confirm.confirm._recorded", noted)
    command = ["confirm", "--prompts", str(made.folder / "prompts.jsonl"), "--out", str(tmp_path / "out")]
    wanted = ["-p", "caddtree", "-p", "sequoia", "-p", "presto"]
    assert main([*command, *wanted]) == 130
    assert [sorted(getattr(one.policy, "artefacts", ())) for one in asked[2:]] == [["cost"], ["ranks"], ["ngram"]]
    for one, said in (("caddtree", "--cost"), ("sequoia", "table=FILE"), ("presto", "ngram=FILE")):
        assert said in refusal_of(*command, *made.models, "-p", one)


def test_a_policy_that_knows_the_answers_is_marked(made: Made, tmp_path: Path) -> None:
    """Its table was fitted on the trace whose prompts are run."""
    table = tmp_path / "ranks.json"
    assert main(["train", "ranks", "--trace", str(made.folder / "trace"), "--out", str(table)]) == 0
    label = f"sequoia:budget=8,table={json.dumps(str(table))}"
    assert f"IN SAMPLE: {label}.\n" in output_of(*typed(made, tmp_path / "out", "-p", label, "--limit", "1"))
    value = json.loads((tmp_path / "out" / "confirm.json").read_text())
    assert [row["policy"] for row in value["rows"] if row["in_sample"]] == [label]


def test_a_fault_has_its_exit_code(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(models: Models, policy: AnyPolicy, *arguments: Any) -> DecodedText:  # noqa: ANN401
        found = decode(models, policy, *arguments)
        return replace(found, text=found.text[:-1]) if policy.budget == 8 else found

    monkeypatch.setattr(confirm, "decode", faulty)
    assert main(typed(made, tmp_path / "out", "--limit", "1")) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILED: the text of ddtree:budget=8 is not the target's: prompt 'p0', turn 0")
    assert lines[1].startswith("FAILED: 2 of 2 texts of ddtree:budget=8 had other rounds than the replay")


def test_an_interrupted_run_says_how_to_go_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    num_left = [5]

    def stop(*arguments: Any) -> DecodedText:  # noqa: ANN401
        num_left[0] -= 1
        if num_left[0] < 0:
            raise KeyboardInterrupt
        return decode(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(confirm, "decode", stop)
        assert main(typed(made, tmp_path / "out")) == 130
    said = capsys.readouterr().err
    assert f"simlab: interrupted; finished parts are in {tmp_path / 'out'}: add --resume to go on" in said
    assert main(typed(made, tmp_path / "out", "--resume")) == 0


def test_the_packaged_trace_and_its_models_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def noted(options: ConfirmOptions, trace: Trace, policies: list[NamedPolicy], *others: object) -> None:
        asked.append((options, trace.manifest.target.name, [one.label for one in policies], *others))
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.confirm.confirm.run_confirmation", noted)
    monkeypatch.chdir(tmp_path)
    assert main(["confirm"]) == 130
    labels = ["autoregressive", "chain", "ddtree:budget=16"]
    assert asked == [(ConfirmOptions(Path("runs/confirm")), "smollm2-135m", labels, None, SummaryContext(), None)]
