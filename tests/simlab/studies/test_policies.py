"""The list of policies, and the page made from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from places import DOCS
from study_results import refused

from simlab.policies import POLICIES
from simlab.policies.parsing.describe import describe, describe_policies
from simlab.studies.policies import WIDTH, list_policies, policies_page, policy_json

PAGE = DOCS / "reference" / "policies.md"

MINE = '''
from dataclasses import dataclass, field
from simlab import ChannelNeed, Draft, DraftTree, Needs, Stateless

@dataclass(frozen=True)
class Mine(Stateless):
    """A chain of ``budget`` tokens, e.g. 4. It is the user's own.

    Not | published.

    Attributes:
        budget: how many.
    """

    budget: int
    note: str | None = None
    share: float = 0.5
    careful: bool = True
    made: int = field(default_factory=lambda: 3)

    @property
    def needs(self) -> Needs:
        return Needs(top_k=3, channels=(ChannelNeed("pool", "pool"),))

    def select(self, draft, state=None):
        return DraftTree.root_only(draft.root_token)

@dataclass(frozen=True)
class Bare(Stateless):
    budget: list = field(default_factory=list)

    def select(self, draft, state=None):
        return DraftTree.root_only(draft.root_token)

class NoDataclass:
    reads = 3
    def select(self, draft, state=None):
        return None
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


def unwrapped(*names: str) -> str:
    """What is said of some policies, without its line breaks."""
    return " ".join(list_policies(names).text().split())


def test_the_page_is_up_to_date() -> None:
    if PAGE.read_text(encoding="utf-8") != policies_page(describe_policies()):
        pytest.fail(f"{PAGE} is not what the code says; run `make reference`")


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_says_what_it_is(name: str) -> None:
    (policy,) = describe_policies([name])
    said = (policy.summary, policy.reads, policy.source, policy.exactness)
    assert all(said)
    assert "not stated" not in said
    assert "unpublished" not in said
    assert policy.summary.endswith(".")
    assert len(policy.summary) <= 160, "the first sentence of its docstring is its line in lists; make it shorter"
    assert any(word in policy.exactness for word in ("exact", "reconstruction")), policy.exactness
    settings = {setting.name for setting in policy.fields}
    assert "cost" not in settings or "latency profile" in policy.reads
    section = policies_page([policy])
    assert all(f"| `{setting}` |" in section for setting in settings)


def test_every_policy_is_on_the_page_and_in_the_list() -> None:
    page = policies_page(describe_policies())
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(POLICIES)
    assert all(f"| [`{name}`](#{name}) |" in page for name in POLICIES)
    lines = list_policies().text().splitlines()
    assert [line.split()[0] for line in lines[: len(POLICIES)]] == list(POLICIES)
    assert all(len(line) <= WIDTH and line == line.rstrip() and line.isprintable() for line in lines)


def test_a_class_in_a_file_is_described(mine: Path) -> None:
    out = unwrapped(f"{mine}:Mine")
    assert "A chain of `budget` tokens, e.g. 4. It is the user's own. Not | published. settings" in out
    assert "how many" not in out
    assert "budget: int, note: str or null = null, share: float = 0.5, careful: bool = true, made: int = 3" in out
    assert "the first 3 candidates at each depth; the channel pool (pool)" in out
    assert "unpublished" in out


def test_a_class_that_says_nothing_is_described_as_far_as_it_goes(mine: Path) -> None:
    (bare, none) = describe_policies([f"{mine}:Bare", f"{mine}:NoDataclass"])
    assert (bare.summary, bare.reads, bare.exactness) == ("No description.", "not stated", "not stated")
    assert (none.summary, none.reads, none.settings) == ("No description.", "not stated", ())
    assert policy_json(bare)["settings"] == [{"name": "budget", "type": "list", "required": False, "default": "[]"}]
    assert "| `budget` | list | `[]` |" in policies_page([bare])
    assert "No settings." in policies_page([none])


def test_a_cell_of_the_table_is_one_cell() -> None:
    @dataclass(frozen=True)
    class Piped:
        """One | two."""

        kind: str = "a|b"
        source: ClassVar[str] = "x | y"

    page = policies_page([describe("piped", Piped)])  # type: ignore[arg-type]
    assert "| [`piped`](#piped) | One \\| two. | x \\| y |" in page
    assert "| `kind` | str | `a\\|b` |" in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MINE:Gone", "no class Gone"),
        ("MINE:Mine:budget=3", "gives settings"),
    ],
)
def test_what_is_no_policy_is_one_sentence(name: str, said: str, mine: Path) -> None:
    assert said in refused(list_policies, [name.replace("MINE", str(mine))])
