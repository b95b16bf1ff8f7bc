"""The file that names the models of a field: read as it is written, and refused with a sentence."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from simlab.errors import UsageError
from simlab.real_runner.execution.executions import EAGER
from simlab.studies.field.models import FieldChannel, packaged_models, read_models


def _written(folder: Path, value: object) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps(value))
    return path


def test_a_file_says_what_the_packaged_models_say(tmp_path: Path) -> None:
    packaged = packaged_models("float32", "cpu", EAGER)
    value = {key: asdict(packaged)[key] for key in ("target", "drafters", "channels")}
    channels = value["channels"]
    assert isinstance(channels, dict)
    for one in channels.values():
        if one["drafter"] is None:
            del one["drafter"]
    assert read_models(_written(tmp_path, value), "float32", "cpu", EAGER) == packaged


def test_a_channel_on_no_drafter_is_timed_beside_the_first() -> None:
    packaged = packaged_models("float32", "cpu", EAGER)
    assert packaged.first == "dflash"
    assert packaged.channels["eagle3"].drafter is None
    assert "eagle3" in packaged.channels_of("dflash")
    assert "eagle3" not in packaged.channels_of("jetspec")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"drafters": {"dflash": "d"}, "channels": {}}, "target"),
        ({"target": "t", "drafters": {}, "channels": {}}, "the field needs a drafter; got none"),
        (
            {"target": "t", "drafters": {"dflash": "d"}, "channels": {"a": {"checkpoint": "c", "drafter": "other"}}},
            "the channel a stands on the draft set other; there are dflash",
        ),
        (
            {
                "target": "t",
                "drafters": {"dflash": "d"},
                "channels": {"a": {"checkpoint": "c", "settings": {"k": "7"}}},
            },
            "k",
        ),
    ],
)
def test_other_files_are_refused(value: object, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"models\.json does not name the models of a field: .*{why}"):
        read_models(_written(tmp_path, value), "float32", "cpu", EAGER)


def test_units_and_settings_are_read(tmp_path: Path) -> None:
    one = {"checkpoint": "c", "drafter": "dflash", "settings": {"top_k": 8}, "units": [1, 2]}
    found = read_models(
        _written(tmp_path, {"target": "t", "drafters": {"dflash": "d"}, "channels": {"d2sd": one}}),
        "float32",
        "cpu",
        EAGER,
    )
    assert found.channels == {"d2sd": FieldChannel("c", "dflash", {"top_k": 8}, (1, 2))}


def test_draft_sets_are_added(tmp_path: Path) -> None:
    packaged = packaged_models("float32", "cpu", EAGER)
    found = packaged.with_drafts({"self": "runs/self"})
    assert list(found.drafters) == [*packaged.drafters, "self"]
    assert found.first == packaged.first
    assert found.channels_of("self") == {}
