"""Commands on a trace with channels: what is said of them, and a policy of one's own that reads one."""

from pathlib import Path

import pytest
from commands import json_of, output_of, refusal_of

from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import replay_sequence
from simlab.totals import Totals
from simlab.traces.reader import open_trace
from simlab.traces.synthetic import DRAFT, SyntheticChannels, write_synthetic_trace

MINE = '''
from dataclasses import dataclass

from simlab import ChannelNeed, Draft, DraftTree, Needs, Stateless


@dataclass(frozen=True)
class Follow(Stateless):
    """The best token of the first row, as often as it has a row of its own."""

    budget: int = 3
    previous: int = 2

    @property
    def needs(self) -> Needs:
        need = ChannelNeed("transitions", "transitions", (("previous", self.previous), ("top_k", 1)))
        return Needs(top_k=1, channels=(need,))

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, [int(draft.channel("transitions").ids[0, 0])])
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("channels") / "trace"
    return write_synthetic_trace(place, 0, 4, 24, 3, 8, 97, channels=SyntheticChannels(previous=3, top_k=3, beam=2))


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(MINE)
    return f"{path}:Follow"


def test_inspect_says_what_channels_there_are(folder: Path) -> None:
    out, trace = output_of("inspect", folder), open_trace(folder)
    assert f"channel    transitions ({trace.channel_ids['transitions']}), transitions of synthetic on the draft" in out
    assert "  depth 3, previous 3, top_k 3, order base-rank\n" in out
    assert "depth 3, top_k 3, beam 2, exact_nodes " in out
    found = json_of("inspect", folder, "--json")["channels"]
    num = sum(len(record.text) - 1 for record in trace.texts)
    assert found["pool"]["num_rows"] == found["transitions"]["num_rows"] == num
    assert found["transitions"]["num_scored"] == num * 7 * 3
    assert found["pool"]["kind"] == "pool"


@pytest.mark.parametrize("more", [(), ("--batch", "2"), ("--threads", "1")], ids=str)
def test_a_policy_of_ones_own_is_replayed(folder: Path, mine: str, more: tuple[str, ...]) -> None:
    (row,) = (
        one
        for one in json_of("replay", "--trace", folder, "-p", mine, "--json", *more)["rows"]
        if one["policy"].endswith("Follow")
    )
    policy = parse_policies([mine])[0].policy
    texts = open_trace(folder).recorded(DRAFT, channels=["transitions"])
    expected = sum((replay_sequence(policy, one) for one in texts), Totals())
    assert (row["rounds"], row["accepted"]) == (expected.rounds, expected.accepted)
    assert expected.accepted > 0


def test_what_was_not_recorded_is_refused(folder: Path, mine: str) -> None:
    said = refusal_of("replay", "--trace", folder, "-p", f"{mine}:previous=4")
    assert "wants previous 4 at least, where 3 was recorded" in said
    assert f"`simlab record --trace {folder} --add-channel transitions-2=CHECKPOINT,previous=4,top_k=1`" in said
