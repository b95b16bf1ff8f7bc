"""Every command: it prints what its study gives back, as text and as JSON, and refuses in one sentence what cannot be.

Figures are tested where they are made, in tests/simlab/studies; options once for all commands, in test_options.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, ran, refusal_of
from confirm_runs import Made, make
from places import TESTS
from study_results import value_of

import simlab
from simlab.studies.fit_ngram import fit_ngram
from simlab.studies.fit_tables import fit_calibration, fit_price, fit_ranks
from simlab.studies.result import StudyResult, with_settings

ENGINES = TESTS / "data" / "engines"
TIMINGS = "caddtree-a800-qwen3-8b"
PARTS = ("0/2", "1/2")


@dataclass(frozen=True)
class Place:
    """A trace, latencies, result rows and parts of rows that commands read, and ``made``, which they write."""

    trace: Path
    cost: Path
    results: Path

    @property
    def parts(self) -> list[Path]:
        return [self.results.with_name(f"part{number}.parquet") for number in range(len(PARTS))]

    @property
    def made(self) -> Path:
        return self.results.with_name("made.json")


@pytest.fixture(scope="module")
def place(trace: Path, cost: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(trace, cost, tmp_path_factory.mktemp("commands") / "results.parquet")
    simlab.replay(trace, ["chain", "ddtree:budget=4"], cost=cost, out=made.results)
    for shard, part in zip(PARTS, made.parts, strict=True):
        simlab.replay(trace, ["chain"], out=part, shard=shard)
    return made


Make = Callable[[Place], Any]

CASES: dict[str, tuple[str, Make]] = {
    "replay": (
        "--trace TRACE --cost COST -p chain -p ddtree:budget=4/8 --limit 3",
        lambda at: simlab.replay(at.trace, ["chain", "ddtree:budget=4/8"], cost=at.cost, limit=3),
    ),
    "merge": ("PART0 PART1 --out MADE", lambda at: simlab.merge(at.parts, at.made)),
    "compare": (
        "RESULTS -p ddtree:budget=4 -p chain --measure speedup",
        lambda at: simlab.compare(at.results, ["ddtree:budget=4", "chain"], measure="speedup"),
    ),
    "optimize": (
        "--trace TRACE --cost COST -p ddtree:budget=4/8 --threads 1",
        lambda at: simlab.optimize(at.trace, ["ddtree:budget=4/8"], cost=at.cost, threads=1),
    ),
    "advise": (
        "--batch 1,4 --limit 6 -p chain:length=2/4 -p ddtree:budget=4/8",
        lambda _: simlab.advise(None, ["chain:length=2/4", "ddtree:budget=4/8"], batch=[1, 4], limit=6),
    ),
    "import": (
        f"{TIMINGS} --counts root-included --out MADE",
        lambda at: simlab.import_timings([TIMINGS], counts="root-included", out=at.made),
    ),
    "crosscheck": (
        f"--answers {ENGINES}/vllm_block4.jsonl --trace {ENGINES}/block4",
        lambda _: simlab.crosscheck(answers=ENGINES / "vllm_block4.jsonl", trace=ENGINES / "block4"),
    ),
    "policies": ("ddtree chain", lambda _: simlab.list_policies(["ddtree", "chain"])),
    "inspect": ("RESULTS", lambda at: simlab.inspect(str(at.results))),
    "prompts": ("demo --limit 3 --out MADE", lambda at: simlab.prompts("demo", limit=3, out=at.made)),
    "train calibration": ("--trace TRACE --out MADE", lambda at: fit_calibration(at.trace, out=at.made)),
    "train ranks": ("--trace TRACE --out MADE", lambda at: fit_ranks(at.trace, out=at.made)),
    "train price": (
        "--trace TRACE --cost COST -p price:budget=4 --limit 3",
        lambda at: fit_price(at.trace, "price:budget=4", cost=at.cost, limit=3),
    ),
    "train ngram": ("--trace TRACE --out MADE", lambda at: fit_ngram(trace=at.trace, out=at.made)),
    "study curves": (
        "--trace TRACE --cost COST --budget 8 --limit 3",
        lambda at: simlab.curves(at.trace, cost=at.cost, budget=8, limit=3),
    ),
    "study scoring": ("--limit 2 --nodes 16", lambda _: simlab.scoring(limit=2, nodes=16)),
    "study engine-rules": ("--limit 3 --batch 1,3", lambda _: simlab.engine_rules(limit=3, batch=[1, 3])),
    "study reproduce": ("ddtreepp-rounds", lambda _: simlab.reproduce("ddtreepp-rounds")),
}
"""By the command, what is typed and a call that asks for the same."""


def words_of(command: str, typed: str, at: Place) -> list[str]:
    """What is typed, with the places of files."""
    named = {"TRACE": at.trace, "COST": at.cost, "RESULTS": at.results, "MADE": at.made}
    named |= {f"PART{number}": part for number, part in enumerate(at.parts)}
    return [*command.split(), *(str(named.get(word, word)) for word in typed.split())]


@contextmanager
def cleared(at: Place) -> Iterator[None]:
    """Nothing was written before, and nothing stays."""
    at.made.unlink(missing_ok=True)
    yield
    at.made.unlink(missing_ok=True)


@pytest.mark.parametrize("command", CASES)
def test_a_command_prints_what_its_study_gives(command: str, place: Place) -> None:
    typed, make = CASES[command]
    words = words_of(command, typed, place)
    with cleared(place):
        result = make(place)
        value, text = value_of(result), result.text()
        if isinstance(result, StudyResult) and hasattr(result, "ROWS"):
            check_rows(result, value)
    with cleared(place):
        shown = output_of(*words)
        assert shown.startswith(f"{text}\n")
        assert all(str(place.made) in line for line in shown[len(text) + 1 :].splitlines())
    with cleared(place):
        assert json.loads(output_of(*words, "--json")) == value


def check_rows(result: StudyResult, value: Any) -> None:  # noqa: ANN401 - any JSON
    """The frame of a result has the rows of its JSON; a key that only some rows have is null in the others."""
    rows = value if isinstance(value, list) else value.get(result.ROWS, [])
    assert {key for row in rows for key in row} <= set(result.frame.columns)
    assert known(result.frame.to_dicts()) == known(with_settings(rows)) or not rows
    assert repr(result) == result.text()
    assert "<" in result._repr_html_()


def known(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows without what is null."""
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def test_an_export_is_printed_or_written_and_its_notes_stand_beside_it(trace: Path, tmp_path: Path) -> None:
    words = ["export", "--trace", trace, "--format", "vllm", "-p", "chain"]
    made = simlab.export("vllm", "chain", trace=trace)
    code, out, err = ran(*words)
    assert (code, out, err.splitlines()) == (0, made.text, "\n".join(made.notes).splitlines())
    path = tmp_path / "vllm.json"
    assert str(path) in output_of(*words, "--out", path)
    assert path.read_text() == simlab.export("vllm", "chain", trace=trace, out=path).text
    assert "names the folder" in refusal_of(*words, "--out", tmp_path)


def test_a_demonstration_and_a_report_are_files(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert str(out) in output_of("report", "--limit", "2", "--texts", "0", "-p", "ddtree:budget=4", "--out", out)
    page = simlab.report(limit=2, texts=0, policies=["ddtree:budget=4"]).html
    assert len(out.read_text(encoding="utf-8")) == pytest.approx(len(page), abs=400), "the command is shown in it"
    code, _, err = ran("demo", "--out", tmp_path / "demo", "--target", tmp_path / "absent", "--draft", "absent")
    assert (code, "could not be loaded: nothing has that name" in err) == (2, True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("models"), num_prompts=1)


def test_models_are_recorded_timed_and_confirmed(models: Made, tmp_path: Path) -> None:
    """A finished file or folder is read again, and says the same."""
    prompts, out, cost = models.folder / "prompts.jsonl", tmp_path / "trace", tmp_path / "new" / "cost.json"
    asked = ("--prompts", prompts, "--max-new-tokens", "16")
    assert f"Recorded: {out}" in output_of("record", *models.models, *asked, "--out", out)
    assert simlab.open_trace(out).text_id == models.trace.text_id
    timed = ("profile", *models.models, "--out", cost, "--repeats", "2", "--node-counts", "4", "--contexts", "16,32")
    code, shown, progress = ran(*timed)
    assert (code, "context  plain" in shown, "%|" in progress) == (0, True, False)  # no bar where nobody looks
    again = f"{cost} is there already; add --resume to go on with it, or give another --out\n"
    assert refusal_of(*timed).endswith(again)
    value = json_of("profile", "--out", cost, "--resume", "--json")
    assert value == value_of(simlab.profile(out=cost, resume=True))
    ran_there = tmp_path / "out"
    confirmed = ("confirm", "--trace", out, "-p", "ddtree:budget=8", "--out", ran_there)
    shown = output_of(*confirmed)
    result = simlab.confirm(out, ["ddtree:budget=8"], out=ran_there, resume=True)
    assert shown.startswith(f"{result.text()}\n")
    assert json_of(*confirmed, "--resume", "--json") == value_of(result)


def test_a_difference_is_an_exit_code() -> None:
    answers = ("crosscheck", "--answers", ENGINES / "vllm_released.jsonl", "--trace", ENGINES / "block8")
    assert json_of(*answers, "--json", code=1)["verdict"] == "rounds differ"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("prompts math --out x", "NAME should be gsm8k"),
        ("record --prompts none.jsonl --out MADE", "none.jsonl cannot be read"),
        ("replay --trace TRACE -p nothing", "no policy `nothing`"),
        ("merge RESULTS --out MADE", "two or more"),
        ("compare RESULTS -p nothing", "has no policy `nothing`; it has"),
        ("optimize --trace TRACE", "there is no latency profile"),
        ("profile --target absent --out MADE", "absent"),
        ("import none.csv --counts root-included --out MADE", "come with simlab"),
        ("advise --trace TRACE", "advice needs a latency profile"),
        ("confirm --trace TRACE --out MADE --from none.json", "none.json"),
        ("crosscheck --endpoint ftp://x --trace TRACE", "were given, not generated by the target"),
        ("report none.parquet --out MADE", "none.parquet"),
        ("policies nothing", "no policy `nothing`"),
        ("inspect none", "there is nothing at none"),
        ("export --format vllm", "needs --policy"),
        ("completion tcsh", "shell should be bash or zsh"),
        ("train ranks --trace none --out MADE", "none"),
        ("train calibration --trace TRACE --out MADE --limit 1", "fewer than 2 prompts"),
        ("train price --trace TRACE -p chain", "expected one policy that learns a rate"),
        ("train ngram --out MADE", "one of the arguments --text --trace is required"),
        ("study curves --trace TRACE --cost COST --edges other", "other"),
        ("study scoring --trace TRACE -p ar", "drafts nothing"),
        ("study engine-rules --cost nothing.json", "nothing.json"),
        ("study reproduce other", "there are ddtreepp-rounds, averaging, zlab-166, ddtree-gsm8k"),
        ("study field --out MADE --confirm-minutes -0.5", "--confirm-minutes must not be negative; got -0.5"),
    ],
)
def test_what_cannot_be_is_one_sentence(typed: str, said: str, place: Place) -> None:
    assert said in refusal_of(*words_of("", typed, place))
    assert not place.made.exists()
