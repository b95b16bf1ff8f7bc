"""Ids of what a tokenizer means: whatever the file looks like that a version of transformers writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import make_pair
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from simlab.real_runner.record.manifests import tokenizer_digest
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_tokenizer
from simlab.traces.artefacts.ngram import find_packaged_ngram
from simlab.traces.format.manifest import same_tokenizer
from simlab.traces.reader import open_trace, packaged_trace

REAL = Path(os.environ.get("SIMLAB_CACHE", "no-such-folder")) / builtin.NAME
OTHER = os.environ.get("SIMLAB_OTHER_TRANSFORMERS", "")
VOCAB, MERGES = {"a": 0, "b": 1, "ab": 2, "ba": 3, "<end>": 4}, [("a", "b"), ("b", "a")]


def made(vocab: dict[str, int] = VOCAB, merges: list[tuple[str, str]] = MERGES, special: bool = True) -> Tokenizer:
    found = Tokenizer(models.BPE(vocab, merges))
    found.add_tokens([AddedToken("<end>", special=special)])
    return found


def digest(plain: Tokenizer) -> str:
    return tokenizer_digest(PreTrainedTokenizerFast(tokenizer_object=plain))


def test_another_file_of_the_same_tokens_has_the_same_digest() -> None:
    other = Tokenizer(models.BPE(VOCAB, MERGES, unk_token="a", fuse_unk=True, byte_fallback=True))
    other.add_tokens([AddedToken("<end>", special=True)])
    other.normalizer = normalizers.Sequence([])
    other.decoder = decoders.Fuse()
    assert other.to_str() != made().to_str()
    assert digest(other) == digest(made())


def test_other_tokens_have_another_digest() -> None:
    swapped = {**VOCAB, "ab": 3, "ba": 2}
    others = [made(swapped), made(merges=MERGES[::-1]), made(special=False), made({**VOCAB, "c": 5})]
    assert len({digest(tokenizer) for tokenizer in (made(), *others)}) == 5


def test_digests_of_older_files_are_known_for_the_built_in_target() -> None:
    former = open_trace(packaged_trace()).manifest.tokenizer_digest
    now = "ea15d0469de9aeebf4b0eae2cc6828ab39bbaffa3bf98cfd408afe3ede469a4d"
    assert same_tokenizer(former, now)
    assert find_packaged_ngram(now) is not None
    assert not same_tokenizer(former, digest(made()))
    if REAL.is_dir():
        assert tokenizer_digest(load_tokenizer(builtin.NAME, REAL)) == now


def test_the_built_in_target_stops_where_it_always_did(tmp_path: Path) -> None:
    """Out of the same file transformers 5.17 reads `<|im_start|>`."""
    target, _ = make_pair(tmp_path)
    config = json.loads((target / "tokenizer_config.json").read_text())
    (target / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "<unk>"}))
    assert load_tokenizer("another", target).eos_token == "<unk>"
    assert load_tokenizer(builtin.NAME, target).eos_token == builtin.STOP_TOKEN


@pytest.mark.skipif(not OTHER, reason="SIMLAB_OTHER_TRANSFORMERS names no folder of another version of transformers")
def test_two_versions_of_transformers_give_the_same_ids(tmp_path: Path) -> None:
    target, _ = make_pair(tmp_path)
    code = (
        "import sys, torch, transformers\n"
        "from simlab.real_runner.record.manifests import tokenizer_digest\n"
        "from simlab.real_runner.targets.loading import load_target\n"
        "for name in sys.argv[1:]:\n"
        "    one = load_target(name, torch.float32)\n"
        "    print(tokenizer_digest(one.tokenizer), one.stop_token_ids, one.end_of_turn_id, one.digest)\n"
        "print(transformers.__version__)\n"
    )
    names = [str(target), *([builtin.NAME] if REAL.is_dir() else [])]
    found = []
    for first in ("", OTHER):
        path = os.pathsep.join(filter(None, [first, *sys.path]))
        command = [sys.executable, "-c", code, *names]
        told = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
        )
        found.append(told.stdout.splitlines())
    assert found[0][-1] != found[1][-1]
    assert found[0][:-1] == found[1][:-1]
