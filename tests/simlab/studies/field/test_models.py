"""The file that names the models of a field: read as it is written, and refused with a sentence."""

import json
from pathlib import Path

import pytest

from simlab.errors import UsageError
from simlab.studies.field.options import PACKAGED, channels_of, read_models


def _written(folder: Path, value: object) -> Path:
    path = folder / "models.json"
    path.write_text(json.dumps(value))
    return path


def test_a_file_says_what_the_packaged_models_say(tmp_path: Path) -> None:
    assert read_models(_written(tmp_path, PACKAGED)) == PACKAGED
    bare = {"target": "t", "drafters": {"dflash": "d"}, "channels": {"eagle3": {"checkpoint": "c"}}}
    whole: dict[str, object] = {"checkpoint": "c", "drafter": None, "settings": {}, "units": []}
    assert read_models(_written(tmp_path, bare))["channels"] == {"eagle3": whole}


def test_a_channel_on_no_drafter_is_timed_beside_the_first() -> None:
    assert PACKAGED["channels"]["eagle3"]["drafter"] is None
    assert list(channels_of(PACKAGED, "dflash")) == ["eagle3", "treeflash", "taps", "d2sd", "router"]
    assert list(channels_of(PACKAGED, "jetspec")) == ["extension", "jetspec"]


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
        read_models(_written(tmp_path, value))
