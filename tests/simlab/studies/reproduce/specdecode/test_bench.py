"""SpecDecode-Bench: chains replayed from a made-up release and from the real one, beside slow replays."""

import itertools
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_oracles import Request, combined_s, copied, lengths_of, plain_s, rounds_s, their_speedup
from made_up_releases import COSTS, LONGEST, MATCH, SEED, made_up, path_of
from made_up_releases import specdecode_contents as contents
from released_data import made_up_release, real_release

from simlab.analysis.statistics.intervals import UNKNOWN, ratio_interval
from simlab.analysis.table.estimates import Estimate
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import Findings, ReleasedFiles
from simlab.studies.reproduce.specdecode import bench as study
from simlab.studies.reproduce.specdecode import chains
from simlab.studies.reproduce.specdecode.chains import ADAPTIVE, BATCHES, THEIR_BATCHES


def specdecode_bench(files: ReleasedFiles) -> Findings:
    return study.specdecode_bench(files, ReproduceOptions(progress=False))


@pytest.fixture
def release(tmp_path: Path) -> ReleasedFiles:
    return made_up_release(tmp_path, contents(made_up()))


def row_of(rows: list[dict[str, Any]], **keys: object) -> dict[str, Any]:
    (found,) = [row for row in rows if all(row[key] == value for key, value in keys.items())]
    return found


def fixed(length: int) -> Callable[[int, int], int]:
    return lambda _drafted, _accepted: length


def adaptive(name: str) -> Callable[[int, int], int]:
    """The rules in their own words."""
    length = 5

    def of_last(drafted: int, accepted: int) -> int:
        nonlocal length
        if drafted > 0:
            if name == "longer-after-success":
                length = accepted + 1
            else:
                length = length + 2 if drafted == accepted else max(1, length - 1)
            length = min(length, LONGEST)
        return length

    return of_last


def slow_seconds(requests: list[Request], drafter: str, batch: int, make: Callable[[], Any]) -> tuple[float, float]:
    own = sum(rounds_s(COSTS, request, drafter, batch, make(), LONGEST)[0] for request in requests)
    plain = [
        plain_s(COSTS, len(request["prompt_token_ids"]), len(lengths_of(request, drafter)), batch)
        for request in requests
    ]
    return sum(plain), own


def slow_speedup(requests: list[Request], drafter: str, batch: int, make: Callable[[], Any]) -> float:
    plain, own = slow_seconds(requests, drafter, batch, make)
    return plain / own


@pytest.mark.parametrize("drafter", ["eagle", "ngram"])
@pytest.mark.parametrize("dataset", ["gsm8k", "sharegpt"])
def test_speedups_are_those_of_a_slow_replay(release: ReleasedFiles, dataset: str, drafter: str) -> None:
    found = specdecode_bench(release).to_json()
    requests = made_up()[dataset]
    steps: Any = found["steps"]
    for policy, length in (("k=1", 1), ("k=3", 3), ("k=5", 5), ("oracle", -1)):
        row = row_of(steps, dataset=dataset, drafter=drafter, policy=policy)
        assert len(row["ours"]) == len(THEIR_BATCHES)
        for index, batch in enumerate(THEIR_BATCHES):
            expected = slow_speedup(requests, drafter, batch, partial(fixed, length))
            assert row["ours"][index] == pytest.approx(expected, abs=6e-4)
        for index in (0, 1):
            theirs = None if length < 0 else length
            expected = their_speedup(COSTS, requests, drafter, theirs, THEIR_BATCHES[index], SEED, MATCH[dataset])
            assert row["theirs"][index] == pytest.approx(expected, abs=6e-4)


def test_an_oracle_that_always_drafts_is_charged_in_every_round(release: ReleasedFiles) -> None:
    steps: Any = specdecode_bench(release).to_json()["steps"]
    requests = made_up()["cnn"]
    row = row_of(steps, dataset="cnn", drafter="eagle", policy="oracle")
    for index, batch in enumerate(THEIR_BATCHES):
        plain, _ = slow_seconds(requests, "eagle", batch, partial(fixed, -1))
        own = sum(rounds_s(COSTS, request, "eagle", batch, fixed(-1), LONGEST, True)[0] for request in requests)
        assert row["ours_always_drafting"][index] == pytest.approx(plain / own, abs=6e-4)
        assert row["ours_always_drafting"][index] < row["ours"][index]
    assert "ours_always_drafting" not in row_of(steps, dataset="cnn", drafter="ngram", policy="oracle")


@pytest.mark.parametrize("drafter", ["eagle", "ngram"])
def test_lengths_are_chosen_on_other_requests(release: ReleasedFiles, drafter: str) -> None:
    found: Any = specdecode_bench(release).to_json()
    requests = made_up()["cnn"]
    row = row_of(found["reached"], dataset="cnn", drafter=drafter)
    for index, batch in enumerate(BATCHES):
        lengths = range(1, LONGEST + 1)
        speeds = [slow_speedup(requests[::2], drafter, batch, partial(fixed, k)) for k in lengths]
        chosen = 1 + speeds.index(max(speeds))
        assert row["chosen"][index] == chosen
        shown = requests[1::2]
        best = slow_speedup(shown, drafter, batch, partial(fixed, -1))
        plain, own = slow_seconds(shown, drafter, batch, partial(fixed, chosen))
        assert row["oracle"][index] == pytest.approx(best, abs=6e-4)
        assert row["fixed_reached"][index] == pytest.approx((plain / own - 1) / (best - 1), abs=6e-4)
        for name in ADAPTIVE:
            other = slow_seconds(shown, drafter, batch, partial(adaptive, name))[1]
            assert row[f"{name}_reached"][index] == pytest.approx((plain / other - 1) / (best - 1), abs=6e-4)
            assert row[f"{name}_over_fixed"][index] == pytest.approx(own / other, abs=6e-4)


def test_combined_takes_the_drafter_with_more(release: ReleasedFiles) -> None:
    found: Any = specdecode_bench(release).to_json()
    requests = made_up()["instructcoder"]
    row = row_of(found["combined"], dataset="instructcoder")
    same = [request for request in requests if len(lengths_of(request, "eagle")) == len(lengths_of(request, "ngram"))]
    assert row_of(found["drafters"], dataset="instructcoder", drafter="eagle")["same_length"] == len(same)
    assert 0 < len(same) < len(requests)
    for index, batch in enumerate(THEIR_BATCHES[:2]):
        for name, as_eagle in (("theirs", False), ("theirs_charged", True)):
            expected = their_speedup(COSTS, requests, "combined", None, batch, SEED, 0.0, as_eagle)
            assert row[name][index] == pytest.approx(expected, abs=6e-4)
        plain = sum(slow_seconds([one], "eagle", batch, partial(fixed, -1))[0] for one in same)
        own = sum(combined_s(COSTS, one, batch) for one in same)
        alone = [slow_seconds(same, drafter, batch, partial(fixed, -1))[1] for drafter in ("eagle", "ngram")]
        assert row["ours"][index] == pytest.approx(plain / own, abs=6e-4)
        assert row["over_better_drafter"][index] == pytest.approx(min(alone) / own, abs=6e-4)


def test_means_and_survival_are_counted(release: ReleasedFiles) -> None:
    found: Any = specdecode_bench(release).to_json()
    requests = made_up()["gsm8k"]
    for drafter in ("eagle", "ngram"):
        dense = [
            [min(right, len(all_of) - at) for at, right in enumerate(all_of) if at]
            for all_of in (lengths_of(request, drafter) for request in requests)
        ]
        row = row_of(found["means"], dataset="gsm8k", drafter=drafter, of="every position")
        assert row["acceptance_length"] == pytest.approx(statistics.mean(itertools.chain(*dense)), abs=6e-4)
        assert row["acceptance_length_macro"] == pytest.approx(statistics.mean(map(statistics.mean, dense)), abs=6e-4)
        walked = [rounds_s(COSTS, request, drafter, 1, fixed(LONGEST), LONGEST)[1] for request in requests]
        tokens = sum(len(lengths_of(request, drafter)) - 1 for request in requests)
        row = row_of(found["means"], dataset="gsm8k", drafter=drafter, of="longest chain")
        assert row["acceptance_length"] == pytest.approx(tokens / sum(walked), abs=6e-4)
        shares = row_of(found["survival"], dataset="gsm8k", drafter=drafter)["shares"]
        some = [
            (min(right - 1, len(all_of) - at), len(all_of) - at)
            for all_of in (lengths_of(request, drafter) for request in requests)
            for at, right in enumerate(all_of)
            if at
        ]
        second = [right >= 2 for right, left in some if left >= 2]
        assert shares[1] == pytest.approx(statistics.mean(second), abs=1e-5)


def test_matches_of_ngrams_are_found_in_the_tokens(release: ReleasedFiles) -> None:
    found = specdecode_bench(release)
    places = [
        copied(one, at, LONGEST)
        for one in made_up()["gsm8k"]
        for at in range(1, len(one["generated_token_ids"]))
        if copied(one, at, LONGEST)[1] == 0
    ]
    (figure,) = [one for one in found.compared if one.what.startswith("gsm8k, ngram: where nothing is accepted")]
    assert figure.ours.value == pytest.approx(statistics.mean(there > 0 for there, _ in places))
    assert figure.theirs is not None
    assert (figure.theirs.value, figure.theirs.path) == (0.25, "simulator.py")
    values: Any = found.to_json()
    assert [row["unexplained"] for row in values["drafters"]] == [None, 0] * 4
    assert row_of(values["drafters"], dataset="gsm8k", drafter="ngram")["past_end"] > 0


@pytest.mark.parametrize("drafter", ["eagle", "ngram"])
def test_adaptive_and_fixed_seconds_are_paired_by_request(release: ReleasedFiles, drafter: str) -> None:
    found: Any = specdecode_bench(release).to_json()
    requests = made_up()["sharegpt"][1::2]
    row = row_of(found["reached"], dataset="sharegpt", drafter=drafter)
    for index, batch in ((0, 1), (5, 128)):
        seconds = [
            np.array([slow_seconds([request], drafter, batch, make)[1] for request in requests])
            for make in (partial(fixed, row["chosen"][index]), partial(adaptive, "two-up-one-down"))
        ]
        expected = ratio_interval(seconds[0], seconds[1])
        ends = [row[f"two-up-one-down_over_fixed_ci_{end}"][index] for end in ("low", "high")]
        assert ends == pytest.approx([expected.low, expected.high], abs=6e-4)
        unpaired = ratio_interval(seconds[0], seconds[1][::-1])
        assert unpaired.high - unpaired.low > 1.2 * (expected.high - expected.low), "the pairing matters here"


def test_verdicts_are_corrected_over_all_cells_and_rules() -> None:
    def verdicts(name: str, *cells: tuple[float, float], by_batch: int = 1) -> str:
        ratios = [Estimate(over, UNKNOWN, p_value) for over, p_value in cells]
        parts = [ratios[at : at + by_batch] for at in range(0, len(ratios), by_batch)]
        rows: list[dict[str, Any]] = [{f"{name}_over_fixed": part for name in ADAPTIVE} for part in parts]
        study.add_corrected_verdicts(rows)
        return "".join(verdict for row in rows for verdict in row[f"{name}_verdict_corrected"])

    # Eight tests: the smallest two p-values times 8 and 7 count, the next, times 6 and 5, do not.
    cells = ((1.1, 0.006), (0.9, 0.007), (1.1, 0.03), (1.1, float("nan")))
    assert [verdicts("two-up-one-down", *cells, by_batch=size) for size in (1, 2, 4)] == ["+-=="] * 3
    assert verdicts("longer-after-success", (1.1, 0.024)) == "+"
    assert verdicts("longer-after-success", (1.1, 0.024), (1.1, 0.024)) == "=="


THEIR_PROGRAM = {
    ("gsm8k", "eagle"): ((1.29, 1.81, 2.01, 2.13), (1.28, 1.73, 1.86, 2.06)),
    ("cnn", "eagle"): ((1.28, 1.76, 1.94, 2.10), (1.26, 1.65, 1.76, 1.96)),
    ("instructcoder", "eagle"): ((1.34, 2.03, 2.38, 2.73), (1.32, 1.91, 2.17, 2.52)),
    ("sharegpt", "eagle"): ((1.26, 1.74, 1.93, 2.10), (1.25, 1.67, 1.80, 2.03)),
    ("gsm8k", "ngram"): ((1.10, 1.15, 1.16, 1.18), (1.09, 1.13, 1.13, 1.17)),
    ("cnn", "ngram"): ((1.20, 1.33, 1.38, 1.45), (1.18, 1.28, 1.30, 1.40)),
    ("instructcoder", "ngram"): ((1.42, 1.86, 2.10, 2.73), (1.38, 1.73, 1.89, 2.45)),
    ("sharegpt", "ngram"): ((1.16, 1.28, 1.33, 1.43), (1.15, 1.25, 1.29, 1.40)),
}
"""What their program writes when it is run on their data: batch sizes 1 and 8; k of 1, 3, 5, and its oracle."""

THEIR_COMBINED = {"gsm8k": (2.80, 2.64), "cnn": (2.97, 2.62), "instructcoder": (4.89, 4.08), "sharegpt": (3.11, 2.88)}


def test_on_the_real_files_their_formulas_give_what_their_program_writes() -> None:
    found: Any = specdecode_bench(real_release("specdecode-bench")).to_json()
    for (dataset, drafter), batches in THEIR_PROGRAM.items():
        for index, policy in enumerate(("k=1", "k=3", "k=5", "oracle")):
            theirs = row_of(found["steps"], dataset=dataset, drafter=drafter, policy=policy)["theirs"]
            assert theirs[:2] == pytest.approx([batch[index] for batch in batches], abs=0.0051)
    for dataset, written in THEIR_COMBINED.items():
        assert row_of(found["combined"], dataset=dataset)["theirs"][:2] == pytest.approx(written, abs=0.0051)
    ngram, eagle = found["drafters"][1::2], found["drafters"][::2]
    assert [row["tokens"] for row in ngram] == [49_848, 96_856, 130_989, 225_541]
    assert [row["tokens"] for row in eagle] == [49_612, 96_644, 125_164, 229_457]
    assert [row["unexplained"] for row in ngram] == [0, 0, 0, 1]
    at_one = [row["fixed_reached"][0] for row in found["reached"]]
    assert min(at_one) > 0.75
    assert max(at_one) < 1.0


def test_on_the_real_files_a_slow_replay_agrees() -> None:
    files = real_release("specdecode-bench")
    entries = chains.read_chains(files, {"gsm8k": path_of("gsm8k")}).filter(drafter="eagle")
    roots, longest = entries.filter(chains.OUR_ROOTS), int(entries["longest"][0])
    requests = [json.loads(line) for line in files.text(path_of("gsm8k")).splitlines()]
    for length in (1, 4, longest):
        slow = [rounds_s(COSTS, request, "eagle", 1, fixed(length), longest)[1] for request in requests]
        assert (
            np.add.reduceat(chains.chain(roots, length) > 0, chains.begins_of(roots), dtype=np.int64).tolist() == slow
        )
    with pytest.raises(ValueError, match=f"have 1 to {longest} tokens; got {longest + 1}"):
        chains.chain(roots, longest + 1)
