"""The table of layouts: what is recognised, by which line, and what people are told of it."""

import subprocess
import sys
from dataclasses import replace

import pytest
from tiny_models import drafter_config

from simlab.real_runner.checkpoints import explained, layouts
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.layouts import LAYOUTS, drafter_fields, is_drafter, layout_of
from simlab.real_runner.checkpoints.zlab import ZLAB, config_to_json


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"speculators_model_type": "eagle3", "dflash_config": {}}, "speculators"),
        ({"dflash_config": {}}, "z-lab"),
        ({"dflash_config": {}, "treeflash_config": {}}, "treeflash"),
        ({"block_size": 8, "architectures": ["TreeFlashDraftModel"]}, "treeflash"),
        ({"block_size": 8}, "z-lab"),
        ({"simlab_gated": True, "peft_type": "LORA"}, "peft"),
    ],
)
def test_the_first_layout_that_recognises_a_configuration_has_it(fields: Fields, name: str) -> None:
    assert is_drafter(fields)
    assert layout_of(fields).name == name


def test_every_configuration_has_a_layout_and_other_models_are_no_drafters() -> None:
    assert layout_of({}) is LAYOUTS[-1]
    assert not is_drafter({"model_type": "qwen3"})
    assert drafter_fields() == (
        "dflash_config",
        "draft_vocab_size",
        "router_config",
        "simlab_gated",
        "speculators_model_type",
        "taps_config",
        "treeflash_config",
        "block_size",
    )


def test_a_new_layout_is_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(
        ZLAB,
        name="mine",
        field="my_drafter",
        recognises=lambda fields: "my_drafter" in fields,
        named_target=lambda fields: str(fields["my_drafter"]),
        described=lambda fields: "mine, first version",
    )
    monkeypatch.setattr(layouts, "LAYOUTS", (new, *LAYOUTS))
    fields = config_to_json(drafter_config()) | {"my_drafter": "a target"}
    assert "my_drafter" in layouts.drafter_fields()
    summary = explained.explain_checkpoint(fields, {}, "here")
    assert summary.format == "mine"
    assert dict(summary.lines)["format"] == "mine, first version"
    assert dict(summary.lines)["made for"] == "a target"


def test_the_table_is_read_without_torch() -> None:
    code = "import sys, simlab.real_runner.checkpoints.explained; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
