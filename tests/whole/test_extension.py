"""Adding a policy, a checkpoint layout, a network, a command or a column takes the two files that docs/map.md names."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from places import REPOSITORY
from safetensors.numpy import save_file
from source_files import FOLDERS, source_files

POLICY = '''"""The first tokens of the chain: a policy that a test adds."""

from dataclasses import dataclass

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.orders.chain_orders import GreedyPathOrder
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class FirstTokens(Composed):
    """The first tokens of the chain."""

    budget: int = 2

    def compose(self, artefacts: Artefacts) -> Composition:
        return Composition(GreedyPathOrder(), FixedBudget(self.budget))
'''

LAYOUT = '''"""A layout of checkpoints that a test adds: z-lab's fields, one level down."""

from collections.abc import Mapping
from typing import cast

from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.zlab import config_from_json
from simlab.real_runner.drafters.config import DFlashConfig

_INNER = "boxed_drafter"


def _config(fields: Fields) -> DFlashConfig:
    return config_from_json(cast(Mapping[str, object], fields[_INNER]))


BOXED = Layout(
    name="boxed",
    field=_INNER,
    recognises=lambda fields: _INNER in fields,
    reads=_config,
    named_target=lambda fields: "anyone/target",
    described=lambda fields: "boxed, as a test writes it",
    tap_offset=1,
    counting="counts layers from 0",
)
'''

NETWORK = '''"""A network that a test adds: it says the same number of every root, and needs no drafter."""

from dataclasses import dataclass
from typing import NoReturn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import integer
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.networks.network import Network, Settings, Tensors

_FIELD = "constant_config"


@dataclass(frozen=True)
class ConstantConfig:
    """What is said."""

    number: int

    def check(self, tensors: Tensors, place: object) -> None:
        check_own({"value": (1,)}, tensors, f"constant in {place}", place)

    def lines(self) -> list[tuple[str, str]]:
        return [("constant", f"it says {self.number}")]


def _config(fields: Fields) -> ConstantConfig | None:
    return ConstantConfig(integer(fields[_FIELD])) if _FIELD in fields else None


def _no_drafter(fields: Fields) -> NoReturn:
    raise ModelError("this is a constant and no drafter")


def _no_channel(fields: Fields, settings: Settings, is_base: bool) -> NoReturn:
    raise ModelError("a constant makes no channel yet")


CONSTANT = Network(
    what="a constant",
    layout=Layout("constant", _FIELD, lambda fields: _FIELD in fields, _no_drafter, lambda fields: "a test's constant"),
    reads=_config,
    reach=_no_channel,
    module="simlab.real_runner.networks.constant",
    needs_drafter=False,
)
'''

COMMAND = '''"""A study that a test adds."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.options import option, study


@dataclass(frozen=True)
class GreetOptions:
    """Who is greeted."""

    DETAILS: ClassVar = "It greets whoever is named."

    name: str = option("you", "whom", "NAME")


@dataclass(frozen=True)
class Greeting:
    """What is said."""

    name: str

    def to_json(self) -> dict[str, object]:
        return {"name": self.name}

    def text(self) -> str:
        return f"greetings to {self.name}"


@study(GreetOptions)
def greet(options: GreetOptions) -> Greeting:
    """Greet somebody."""
    return Greeting(options.name)
'''

CONFIG = {
    "boxed_drafter": {
        "block_size": 8,
        "num_target_layers": 4,
        "num_hidden_layers": 1,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]},
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "vocab_size": 32,
    }
}

CHECK_POLICY = """
from simlab.policies import POLICIES
from simlab.policies.parsing.parse import parse_policies
from simlab.testing import check_policy

check_policy(POLICIES["first-tokens"](budget=3), draws=10)
print(*(one.label for one in parse_policies(["first-tokens:budget=1..3"])))
"""


@dataclass(frozen=True, slots=True)
class Touch:
    """What one extension changes: a file that it writes, or text that it puts before other text of a file."""

    path: str
    before: str
    added: str


EXTENSIONS: dict[str, tuple[Touch, ...]] = {
    "policy": (
        Touch("policies/named/first_tokens.py", "", POLICY),
        Touch(
            "policies/__init__.py",
            '        "adaflash": "adaflash:AdaFlash",',
            '        "first-tokens": "first_tokens:FirstTokens",\n',
        ),
    ),
    "layout": (
        Touch("real_runner/checkpoints/boxed.py", "", LAYOUT),
        Touch(
            "real_runner/networks/known.py",
            "from simlab.real_runner.checkpoints.layout import",
            "from simlab.real_runner.checkpoints.boxed import BOXED\n",
        ),
        Touch("real_runner/networks/known.py", "SPECULATORS, *(network.layout", "BOXED, "),
    ),
    "network": (
        Touch("real_runner/networks/constant.py", "", NETWORK),
        Touch(
            "real_runner/networks/known.py",
            "from simlab.real_runner.networks.eagle3.config import",
            "from simlab.real_runner.networks.constant import CONSTANT\n",
        ),
        Touch("real_runner/networks/known.py", "ADAPTER, ROUTER)", "CONSTANT, "),
    ),
    "command": (
        Touch("simlab/studies/greet.py", "", COMMAND),
        Touch(
            "simlab/cli/main.py",
            '    "completion": Command(',
            '    "greet": _study("greet", "GreetOptions", "greet", "Greet somebody."),\n',
        ),
    ),
    "column": (
        Touch(
            "analysis/table/summaries.py",
            '            "tokens_per_s": self.speed',
            '            "clipped_share": self.totals.clipped / self.totals.rounds,\n',
        ),
        Touch(
            "analysis/table/text.py",
            '    ("rounds", "", lambda',
            '    ("clipped", "/round", lambda one: number(one.totals.clipped / one.totals.rounds, 4)),\n',
        ),
    ),
}

FILES = {
    "policy": {"policies/named/first_tokens.py", "policies/__init__.py"},
    "layout": {"real_runner/checkpoints/boxed.py", "real_runner/networks/known.py"},
    "network": {"real_runner/networks/constant.py", "real_runner/networks/known.py"},
    "command": {"simlab/studies/greet.py", "simlab/cli/main.py"},
    "column": {"analysis/table/summaries.py", "analysis/table/text.py"},
}
"""The files that docs/map.md names."""


@dataclass(frozen=True, slots=True)
class Product:
    """A copy of the product, and an empty folder to work in."""

    root: Path
    work: Path

    def run(self, *arguments: str) -> str:
        """What Python prints, with simlab taken from the copy.

        Raises:
            AssertionError: it ended with another code than 0.
        """
        environment = os.environ | {"PYTHONPATH": str(self.root)}
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd=self.work
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def simlab(self, *arguments: str) -> str:
        """What a command of simlab prints."""
        return self.run("-m", "simlab", *arguments)

    def touch(self, one: Touch) -> None:
        """Write a new file, or add to one that is there, at a place that it has once."""
        path = self.root / one.path
        if not one.before:
            assert not path.exists()
            path.write_text(one.added, encoding="utf-8")
            return
        text = path.read_text(encoding="utf-8")
        assert text.count(one.before) == 1, f"{one.path} has {one.before!r} {text.count(one.before)} times"
        path.write_text(text.replace(one.before, one.added + one.before), encoding="utf-8")

    def changed(self) -> set[str]:
        """Python files that the repository has not, or has with other text."""
        found = {
            path.relative_to(self.root).as_posix()
            for folder in ("simlab", *FOLDERS)
            for path in (self.root / folder).rglob("*.py")
        }
        known = {path.as_posix() for path in source_files()}
        assert known <= found
        kept = {one for one in known if (REPOSITORY / one).read_bytes() == (self.root / one).read_bytes()}
        return found - kept


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Product:
    """A copy with all five extensions; the data are links, and compiled kernels come along."""
    root = tmp_path_factory.mktemp("product")
    for name in ("simlab", *FOLDERS):
        shutil.copytree(REPOSITORY / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("data"))
        if (REPOSITORY / name / "data").is_dir():
            (root / name / "data").symlink_to(REPOSITORY / name / "data")
    copy = Product(root, tmp_path_factory.mktemp("work"))
    assert copy.changed() == set()
    seen: set[str] = set()
    for name, touches in EXTENSIONS.items():
        for touch in touches:
            copy.touch(touch)
        assert copy.changed() - seen == FILES[name] - seen
        seen |= FILES[name]
    return copy


@pytest.mark.thorough
def test_the_copy_is_what_runs(product: Product) -> None:
    place = product.run("-c", "import simlab, simlab.policies as p; print(simlab.__file__, p.__file__)").split()
    assert all(Path(one).is_relative_to(product.root) for one in place)


@pytest.mark.parametrize(
    ("name", "wish"),
    [
        ("policy", "add a policy"),
        ("layout", "support a checkpoint layout"),
        ("network", "add a network"),
        ("command", "add a command"),
        ("column", "add a column of replay's table from sums that exist"),
    ],
)
def test_the_map_names_the_files(name: str, wish: str) -> None:
    page = (REPOSITORY / "docs" / "map.md").read_text(encoding="utf-8")
    (line,) = (one for one in page.splitlines() if one.startswith(f"| {wish} |"))
    for file in FILES[name]:
        named = file if (REPOSITORY / file).is_file() else f"its own file in `{Path(file).parent}/`"
        assert named in line.replace("its module in", "its own file in")


@pytest.mark.thorough
def test_policy_is_listed_checked_and_replayed(product: Product) -> None:
    assert "first-tokens" in product.simlab("policies", "first-tokens")
    labels = product.run("-c", CHECK_POLICY)
    assert labels.split() == [f"first-tokens:budget={budget}" for budget in (1, 2, 3)]


@pytest.mark.thorough
def test_policy_and_column_stand_in_the_table(product: Product) -> None:
    asked = ("replay", "--limit", "1", "-p", "first-tokens:budget=1/3")
    rows = json.loads(product.simlab(*asked, "--json"))["rows"]
    by_policy = {row["policy"]: row for row in rows}
    short, long = (by_policy[f"first-tokens:budget={budget}"] for budget in (1, 3))
    assert 1 < short["acceptance_length"] <= 2
    assert short["acceptance_length"] < long["acceptance_length"] <= by_policy["chain"]["acceptance_length"]
    assert all(row["clipped_share"] == row["clipped"] / row["rounds"] for row in rows)
    text = product.simlab(*asked)
    heading = next(line for line in text.splitlines() if line.startswith("policy "))
    assert "clipped" in heading
    (line,) = (line for line in text.splitlines() if line.startswith("first-tokens:budget=3"))
    assert f"{long['clipped_share']:.4f}" in line


@pytest.mark.thorough
def test_layout_is_recognised(product: Product) -> None:
    folder = product.work / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    save_file({"fc.weight": np.zeros((8, 16), np.float32)}, folder / "model.safetensors")
    text = product.simlab("inspect", str(folder))
    assert "boxed, as a test writes it" in text
    assert "anyone/target" in text
    assert "drafts" in text  # the fields were read: a configuration stands below
    assert "counts layers from 0, as boxed, " in " ".join(product.simlab("record", "--help-all").split())


@pytest.mark.thorough
def test_network_is_recognised(product: Product) -> None:
    folder = product.work / "constant"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"constant_config": 7}), encoding="utf-8")
    save_file({"value": np.zeros(1, np.float32)}, folder / "model.safetensors")
    text = product.simlab("inspect", str(folder))
    assert "a test's constant" in text
    assert "it says 7" in text
    assert "will run   yes" in text


@pytest.mark.thorough
def test_command_is_listed_and_runs(product: Product) -> None:
    assert "Greet somebody" in product.simlab("--help")
    assert "greets whoever is named" in product.simlab("greet", "--help")
    assert product.simlab("greet", "--name", "all") == "greetings to all\n"
    assert product.simlab("greet", "--json") == '{\n "name": "you"\n}\n'
    code = "from simlab.studies.greet import greet; print(greet(name='me').text())"
    assert product.run("-c", code) == "greetings to me\n"
