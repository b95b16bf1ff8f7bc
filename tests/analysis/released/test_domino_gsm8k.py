"""Another group's Qwen3-8B on GSM8K: plain sums give the same figures, and a fault in the records is seen."""

import json
from pathlib import Path

import numpy as np
import pytest
from released_data import made_up_release, real_release, values_of

from simlab.analysis.released.domino.gsm8k import METHODS, MODEL, PROMPTS, SUMS, PublishedElsewhere, domino_gsm8k
from simlab.analysis.released.files import ReleasedFiles
from simlab.errors import SimlabError

ELSEWHERE = (
    PublishedElsewhere("a page", "dflash", "macro", 6.0),
    PublishedElsewhere("a page", "dflash", "pooled", 5.9),
    PublishedElsewhere("another", "dflash", "speedup", 99.0),
)


def records(num: int = 12) -> list[dict[str, object]]:
    random = np.random.default_rng(7)
    means = {"baseline": 1.0, "dflash": 6.0, "ddtree_tb16": 7.0, "caddtree": 7.0}
    return [
        {
            "method": method,
            "sample_idx": index,
            "tps": float(15 * mean * random.uniform(0.5, 1.0)),
            "mean_accept": 1.0 if mean == 1 else float(mean * random.uniform(0.8, 1.2)),
        }
        for index in range(num)
        for method, mean in means.items()
    ]


def sums_of(name: str) -> dict[str, object]:
    return {
        "method": name,
        "samples": 12,
        "output_tokens": 660,
        "decode_seconds": 9.5,
        "decode_rounds_mean": 10.0,
        "accept_len_round_weighted": 5.5,
    }


def contents(rows: list[dict[str, object]]) -> dict[str, str]:
    macro = {
        name: np.mean([float(str(one["mean_accept"])) for one in rows if one["method"] == name]) for name in METHODS
    }
    speed = {
        name: np.mean([float(str(one["tps"])) for one in rows if one["method"] == name])
        for name in ("baseline", *METHODS)
    }
    lines = ["temp,dataset,method,speedup,tau"]
    lines += [f"0.0,gsm8k,{METHODS[name]},{speed[name] / speed['baseline']},{macro[name]}" for name in METHODS]
    return {
        PROMPTS: "".join(json.dumps(row) + "\n" for row in rows),
        MODEL.cells: "\n".join(lines) + "\n",
        SUMS: json.dumps({"rows": [sums_of(name) for name in METHODS]}),
    }


def check_against_plain_sums(files: ReleasedFiles) -> None:
    found = {one.what: one for one in domino_gsm8k(files).compared}
    rows = [json.loads(line) for line in files.text(PROMPTS).splitlines()]
    plain = [row["tps"] for row in rows if row["method"] == "baseline"]
    for method, name in METHODS.items():
        own = [row for row in rows if row["method"] == method]
        macro = found[f"{name}: macro average (per response)"]
        assert macro.ours == pytest.approx(sum(row["mean_accept"] for row in own) / len(own))
        assert macro.interval.low < macro.ours < macro.interval.high
        assert macro.verdict == "as printed"
        speed = found[f"{name}: speedup, mean of prompts"]
        assert speed.ours == pytest.approx(sum(row["tps"] for row in own) / sum(plain))


def test_plain_sums_give_the_same(tmp_path: Path) -> None:
    check_against_plain_sums(made_up_release(tmp_path, contents(records())))


def test_what_others_print_stands_beside_it(tmp_path: Path) -> None:
    found = domino_gsm8k(made_up_release(tmp_path, contents(records())), ELSEWHERE)
    rows = values_of(found)["elsewhere"]
    assert [row["within_interval"] for row in rows] == [True, None, False]
    assert rows[1]["here"] == 5.5
    assert "our interval holds 6.00 (a page, macro); it excludes 99.00 (another, speedup)" in found.follows
    assert "is the mean over prompts" in found.follows
    assert "outside" in found.text()
    assert "a page (sha256" not in found.text(), "what other pages print was read from no file"


@pytest.mark.parametrize(
    ("elsewhere", "told"),
    [
        (ELSEWHERE[:1], "our interval holds 6.00 (a page, macro)."),
        (ELSEWHERE[1:2], "nothing has an interval here."),
        (ELSEWHERE[2:], "it excludes 99.00 (another, speedup)."),
    ],
)
def test_what_follows_depends_on_what_others_print(
    elsewhere: tuple[PublishedElsewhere, ...], told: str, tmp_path: Path
) -> None:
    assert told in domino_gsm8k(made_up_release(tmp_path, contents(records())), elsewhere).follows


def test_another_table_is_seen(tmp_path: Path) -> None:
    made = contents(records())
    made[MODEL.cells] = made[MODEL.cells].replace("DFlash,", "DFlash,1", 1)
    assert "is not the mean over prompts" in domino_gsm8k(made_up_release(tmp_path, made)).follows


def test_a_missing_prompt_is_refused(tmp_path: Path) -> None:
    rows = records()
    rows.remove(next(row for row in rows if row["method"] == "caddtree"))
    files = made_up_release(tmp_path, contents(rows))
    with pytest.raises(SimlabError, match="other prompts of caddtree"):
        domino_gsm8k(files)


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        (PROMPTS, '{"method": "baseline", "sample_idx": 0, "tps": 3.0}\n', "without sample_idx, mean_accept or tps"),
        (PROMPTS, '{"method": "baseline", "sample_idx": [], "tps": {}}\n', "not in the form"),
        (PROMPTS, "no JSON\n", "JSON"),
        (SUMS, "{}", "has no rows"),
        (SUMS, '{"rows": [3]}', "a row without a method"),
        (SUMS, '{"rows": [{"method": "dflash"}]}', "expected positive numbers"),
        (SUMS, json.dumps({"rows": [sums_of("dflash")]}), "no sums of ddtree_tb16, caddtree"),
    ],
)
def test_another_form_is_refused(name: str, text: str, refusal: str, tmp_path: Path) -> None:
    files = made_up_release(tmp_path, contents(records()) | {name: text})
    with pytest.raises(SimlabError, match=refusal):
        domino_gsm8k(files)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    files = made_up_release(tmp_path, contents(records()))
    with (tmp_path / PROMPTS).open("a") as file:
        file.write("\n")
    with pytest.raises(SimlabError, match="not as it was released"):
        domino_gsm8k(files)


def test_the_real_records() -> None:
    files = real_release("domino-tree")
    check_against_plain_sums(files)
    found = domino_gsm8k(files)
    assert found.values["prompts"] == 50
    assert "is the mean over prompts" in found.follows
    pooled = [one.ours for one in found.compared if one.what.endswith("pooled")]
    assert [round(one, 2) for one in pooled] == [6.45, 7.35, 7.34]
