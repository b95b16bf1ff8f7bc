"""Rounds as columns, and the result rows and tables of rounds that are made of them."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.columns import RoundColumns, columns_of
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import Round, rounds, totals_of
from simlab.studies.replay.run import endings, rows_of_rounds
from simlab.testing.random_texts import random_sequence
from simlab.traces.results.rounds_file import ENDINGS, RoundsFile, rounds_schema

SEEDS = st.integers(0, 10**6)
POLICIES = parse_policies(["ar", "chain", "chain:length=2", "ddtree:budget=1/3/12"])


def made_up(seed: int) -> RecordedSequence:
    return random_sequence(np.random.default_rng(seed), most_kept=6)


@given(SEEDS)
def test_columns_say_what_the_rounds_say(seed: int) -> None:
    recorded = made_up(seed)
    for policy in POLICIES:
        found = list(rounds(policy.policy, recorded))
        columns = columns_of(found)
        assert columns.totals() == totals_of(found)
        assert columns.num_rounds == len(found)
        rows = zip(*(column.tolist() for column in columns.columns()), strict=True)
        assert list(rows) == [(r.position, r.num_drafted, r.num_accepted, r.num_committed, r.clipped) for r in found]


def test_columns_are_read_only_and_equally_long() -> None:
    columns = columns_of([])
    assert columns.totals() == totals_of([])
    assert not any(column.flags.writeable for column in columns.columns())
    for wrong, said in ((np.zeros(3, np.int64), "equally long"), (np.zeros((2, 2), np.int64), "flat")):
        with pytest.raises(ValueError, match=said):
            RoundColumns(wrong, wrong[:2], wrong, wrong, wrong[:2] > 0)


def slow_ending(round_: Round, top_k: int | None, recorded: RecordedSequence) -> str:
    """Why a round ended, from the candidates themselves."""
    index = round_.position + round_.num_accepted + 1
    if index >= len(recorded.text):
        return "text end"
    assert recorded.rows is not None
    marginals = list(recorded.rows.rows())[round_.position]
    if round_.num_accepted == marginals.depth:
        return "block end"
    read = marginals.at(round_.num_accepted + 1)[0][:top_k].tolist()
    return "not in tree" if int(recorded.text[index]) in read else "not kept"


@given(SEEDS)
def test_why_a_round_ended(seed: int) -> None:
    recorded = made_up(seed)
    for policy in POLICIES[1:]:
        found = list(rounds(policy.policy, recorded))
        why = [ENDINGS[ending] for ending in endings(policy.policy.needs, columns_of(found), recorded)]
        assert why == [slow_ending(each, policy.policy.needs.top_k, recorded) for each in found]


def test_plain_decoding_ends_where_its_block_of_nothing_does() -> None:
    recorded = next(sequence for sequence in map(made_up, range(99)) if len(sequence.text) > 3)
    found = columns_of(rounds(POLICIES[0].policy, recorded))
    assert {ENDINGS[ending] for ending in endings(POLICIES[0].policy.needs, found, recorded)} == {"block end"}


KEYS = ("sequence", "policy_id", "text_id", "draft_id", "channel_ids")
WHICH = {"text_id": "text", "draft_id": "draft"}


def test_a_table_of_rounds_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rounds.parquet"
    file = RoundsFile(path, resume=False)
    texts = [sequence for sequence in map(made_up, range(30)) if len(sequence.text) > 1][:4]
    expected = []
    for number, text in enumerate(texts):
        recorded = replace(text, index=number)
        found = [columns_of(rounds(policy.policy, recorded)) for policy in POLICIES]
        rows = rows_of_rounds(POLICIES, found, recorded, WHICH, ["{}"] * len(POLICIES))
        file.add(rows)
        expected.append(rows)
    assert not path.exists()
    file.finish(pl.concat(expected).group_by(KEYS, maintain_order=True).first())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["rounds.parquet"]
    found_rows = pl.read_parquet(path)
    assert found_rows.schema == pl.Schema(rounds_schema())
    assert found_rows.equals(pl.concat(expected))
    assert found_rows["miss_depth"].equals(found_rows["num_accepted"] + 1, check_names=False)
    chain = expected[0].filter(policy="chain")
    assert all(b - a == n for (a, b), n in zip(pairwise(chain["position"]), chain["num_committed"], strict=False))
    assert (chain["context"] - chain["position"]).unique().to_list() == [len(texts[0].prompt.token_ids)]


def test_a_table_of_no_rounds_has_its_columns(tmp_path: Path) -> None:
    none = pl.DataFrame(schema=rounds_schema())
    RoundsFile(tmp_path / "rounds.parquet", resume=False).finish(none)
    assert pl.read_parquet(tmp_path / "rounds.parquet").schema == pl.Schema(rounds_schema())
