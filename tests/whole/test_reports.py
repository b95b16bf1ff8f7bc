"""Small inputs that once went wrong, each with what its README says should come out; they lie beside a clone."""

from pathlib import Path

import pytest
from commands import ran
from places import SHARED

REPORTS = SHARED / "data" / "reports"
pytestmark = pytest.mark.skipif(not REPORTS.is_dir(), reason=f"{REPORTS} is not there")

SAID: dict[str, tuple[int, str]] = {
    "inspect taps-missing/two-taps": (0, "no: the drafter's config.json has no 'target_layer_ids'"),
    "inspect taps-missing/three-taps": (0, "no: the drafter's config.json has no 'target_layer_ids'"),
    "inspect eagle3-without-draft-vocab/with-key": (0, "will run   yes"),
    "inspect eagle3-without-draft-vocab/without-key": (0, "vocabulary 512 of the target's 512 tokens"),
    # LiLiCorr is run by now; these hold a few tensors under made-up names.
    "inspect heads-on-dflash/lilicorr": (0, "will run   no: the lattice head in"),
    "inspect heads-on-dflash/lilicorr-without-projector-type": (0, "will run   no: the lattice head in"),
    "inspect heads-on-dflash/multi-future": (0, "of MFD (num_modes), and simlab lacks its learned modes"),
    "inspect heads-on-dflash/ubtree": (0, "lacks its bigram selector; below it is plain DFlash"),
    "inspect heads-on-dflash/dspine": (0, "lacks its injection between layers"),
    "record --target hybrid-target/target --prompts hybrid-target/prompts.jsonl --out OUT --dry-run": (
        2,
        "`simlab record --completions FILE --hidden-states DIR --hidden-layers K,K,..",
    ),
    "import llamacpp-counters/metrics.txt": (0, "acceptance length   2.6250"),
    "inspect padded-vocabulary/drafter": (0, "(49,280 tokens by config.json; rows of padding may differ)"),
    "record --draft padded-vocabulary/drafter --prompts padded-vocabulary/prompts.jsonl --out OUT --dry-run": (
        0,
        "config.json says vocab_size 49,280, and smollm2-135m has 49,152",
    ),
    "record --prompts prompts-role-content/train.jsonl --out OUT --dry-run": (0, "prompts         2\n"),
    "record --prompts prompts-with-tools/called.jsonl --out OUT --dry-run": (0, "; tools of 1 prompts"),
    "record --prompts prompts-with-tools/offered.jsonl --out OUT --dry-run": (
        0,
        '{"enable_thinking": false}; tools of 1',
    ),
    "inspect quantised-drafters/int4-packed-fc": (
        0,
        "quantised (compressed-tensors, pack-quantized, int4 in groups of",
    ),
    "inspect quantised-drafters/nvfp4": (0, "quantised (modelopt, NVFP4)"),
    "inspect quantised-drafters/fp8": (0, "quantised (fp8, blocks of 128 x 128, activations too)"),
    "import sglang-bench-data-parallel/bench.jsonl": (
        2,
        "accept_length null and dp_size 4: the benchmark asks one of the 4",
    ),
    "import sglang-ranks/metrics.txt": (1, "acceptance length  2.6250"),
    "inspect uno-adapter/adapter": (0, "adapter    UNO's: the target drafts for itself"),
    "import vllm-no-acceptance/bench.json": (
        1,
        "NO ACCEPTANCE: of first drafted tokens 0.039 % are kept where the trace",
    ),
    "import widths-of-a-laptop/one-context.csv --counts root-included --out OUT": (0, "imported from one-context.csv"),
    "import widths-of-a-laptop/milliseconds.csv --counts root-included --out OUT": (
        2,
        "milliseconds.csv has width, ctx, verify_ms; expected names with commas between them: a size",
    ),
}
"""Of each command the exit code, and what it says; quantised targets are recorded below."""


def typed(words: str, out: Path) -> list[str]:
    """The words of a command, with whole paths."""
    names = {"OUT": str(out)}
    return [names.get(word, str(REPORTS / word) if (REPORTS / word).exists() else word) for word in words.split()]


@pytest.mark.parametrize("words", SAID)
def test_a_report_gives_what_its_readme_says(words: str, tmp_path: Path) -> None:
    expected, said = SAID[words]
    code, out, err = ran(*typed(words, tmp_path / "out"))
    assert (code, said in out + err) == (expected, True), out + err


@pytest.mark.parametrize("kind", ["fp8", "int4"])
def test_a_quantised_target_is_recorded(kind: str, tmp_path: Path) -> None:
    pair = f"record --target quantised-target/{kind}-target --draft quantised-target/drafter --max-new-tokens 8"
    prompts = "--prompts quantised-target/prompts.jsonl --out OUT"
    code, out, _ = ran(*typed(f"{pair} {prompts} --dry-run", tmp_path / "out"))
    assert (code, f"stored as {'fp8' if kind == 'fp8' else 'compressed-tensors'}, " in out) == (0, True)
    assert ran(*typed(f"{pair} {prompts}", tmp_path / "out"))[0] == 0


def test_a_table_of_a_laptop_answers_or_says_what_to_add(tmp_path: Path) -> None:
    assert (
        ran(*typed("import widths-of-a-laptop/one-context.csv --counts root-included --out OUT", tmp_path / "w"))[0]
        == 0
    )
    code, out, _ = ran("advise", "--cost", tmp_path / "w", "--batch", "1")
    assert (code, "where the contexts of" in out) == (0, True)
