"""Another group's Qwen3-8B on GSM8K: plain sums give the same figures, and a fault in the records is seen."""

import json
from pathlib import Path

import pytest
from made_up_releases import GSM8K_METHODS as METHODS
from made_up_releases import gsm8k_contents, gsm8k_records
from released_data import made_up_release, real_release

from simlab.studies.reproduce.domino import gsm8k as study
from simlab.studies.reproduce.domino.gsm8k import PROMPTS
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import Findings, ReleasedFiles


def domino_gsm8k(files: ReleasedFiles) -> Findings:
    return study.domino_gsm8k(files, ReproduceOptions())


def check_against_plain_sums(files: ReleasedFiles) -> None:
    found = {figure.what: figure for figure in domino_gsm8k(files).compared}
    rows = [json.loads(line) for line in files.text(PROMPTS).splitlines()]
    plain = [row["tps"] for row in rows if row["method"] == "baseline"]
    for method, name in METHODS.items():
        own = [row for row in rows if row["method"] == method]
        macro = found[f"{name}: macro average (per response)"]
        assert macro.ours.value == pytest.approx(sum(row["mean_accept"] for row in own) / len(own))
        assert macro.ours.interval.low < macro.ours.value < macro.ours.interval.high
        assert macro.verdict == "as printed"
        speed = found[f"{name}: speedup, mean of prompts"]
        assert speed.ours.value == pytest.approx(sum(row["tps"] for row in own) / sum(plain))


def test_plain_sums_give_the_same(tmp_path: Path) -> None:
    check_against_plain_sums(made_up_release(tmp_path, gsm8k_contents(gsm8k_records())))


THEIRS = (("a page", "macro", 6.0), ("a page", "pooled", 5.9), ("another", "speedup", 99.0))


def test_the_real_records() -> None:
    files = real_release("domino-tree")
    check_against_plain_sums(files)
