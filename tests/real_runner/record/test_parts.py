"""`simlab record --shard I/N`: parts in one folder or in several are the trace of one process, whoever was killed."""

import json
import shutil
from pathlib import Path

import pytest
from commands import output_of, refusal_of
from depth import some
from forked_processes import begun, kill_at
from tiny_recordings import bytes_of, make_models, options_of, typed

from simlab.cli.main import main
from simlab.real_runner.record.record import record
from simlab.traces.format.documents import with_digest
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.inspect import check_trace

NUM_SHARDS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_models(tmp_path_factory.mktemp("parts"), 24)
    record(options_of(made, made / "one"))
    return made


def command(folder: Path, out: Path, part: str, *more: str) -> list[str]:
    return typed(folder, out, "--shard", part, *more)


def names_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def merge(*arguments: object) -> list[str]:
    return ["merge", *map(str, arguments)]


def parts_of(folder: Path, *parts: int, count: int = 2) -> list[Path]:
    """Folders of parts, as a part leaves them, made of the recording of one process."""
    return [part_folder(folder, number, count) for number in parts]


def part_folder(folder: Path, number: int, count: int) -> Path:
    out = folder / f"part-{number}-of-{count}"
    if not out.exists():
        assert main(command(folder, out, f"{number}/{count}")) == 0
    return out


@pytest.mark.parametrize(("count", "order"), some([(4, [2, 0, 3, 1]), (2, [1, 0]), (1, [0])]))
def test_folders_of_their_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, order: list[int]
) -> None:
    parts = [tmp_path / str(number) for number in range(count)]
    for number, part in enumerate(parts):
        said = output_of(*command(folder, part, f"{number}/{count}"))
        assert ("it lacks" in said) == (count > 1), said
    out = tmp_path / "all"
    if count == 1:
        out = parts[0]
        assert main(merge(out)) == 0, "a complete trace needs no merging, and that is no fault"
    else:
        assert main(merge(*(parts[number] for number in order), "--out", out)) == 0
    assert f"{NUM_SHARDS} shards: {out}" in capsys.readouterr().out
    assert bytes_of(out) == bytes_of(folder / "one")
    assert "unfinished" not in names_of(out)
    check_trace(out)
    said = json.loads((out / "recording.json").read_text())
    assert set(said["parts"]) == {f"{number}/{count}" for number in range(count)}
    assert said["positions"] == json.loads((folder / "one" / "recording.json").read_text())["positions"]


@pytest.mark.thorough
def test_one_folder_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    started = [begun(command(folder, out, f"{number}/3")) for number in range(3)]
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0, 0]
    assert bytes_of(out) == bytes_of(folder / "one")
    assert names_of(out) == names_of(folder / "one")


@pytest.mark.thorough
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_killed_part_goes_on(folder: Path, tmp_path: Path, is_shared: bool) -> None:
    first, second = (tmp_path / "0", tmp_path / ("0" if is_shared else "1"))
    kill_at(first / "unfinished" / "sequences-0004.parquet", begun(command(folder, first, "0/2")))
    output_of(*command(folder, second, "1/2"))
    assert "of the 6 shards of part 0/2 already; add --resume" in refusal_of(*command(folder, first, "0/2"))
    if not is_shared:
        assert "are not in " in refusal_of(*merge(first, second, "--out", tmp_path / "all"))
    assert main(command(folder, first, "0/2", "--resume")) == 0
    out = first if is_shared else tmp_path / "all"
    assert is_shared or main(merge(second, first, "--out", out)) == 0
    assert bytes_of(out) == bytes_of(folder / "one")


@pytest.mark.thorough
def test_a_merge_that_was_killed_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, out = parts_of(folder, 0, 1), tmp_path / "all"
    real, calls = shutil.copyfileobj, 0

    def copy(source: object, target: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt
        real(source, target)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", copy)
        assert main(merge(*parts, "--out", out)) == 130
    assert (out / "unfinished").exists()
    assert main(merge(*parts, "--out", out)) == 0
    assert bytes_of(out) == bytes_of(folder / "one")


def test_the_same_part_twice_at_once_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    with exclusive_lock(out / "part-0-of-2"):
        assert "another simlab is writing" in refusal_of(*command(folder, out, "0/2"))
        assert main(command(folder, out, "1/2")) == 0


def changed(part: Path, copy: Path, values: dict[str, object]) -> Path:
    """A copy of a part whose manifest says something else."""
    shutil.copytree(part, copy)
    path = copy / "unfinished" / "manifest.json"
    there = json.loads(path.read_text())
    for key, value in values.items():
        there[key] = there[key] | value if isinstance(value, dict) else value
    del there["digest"]
    path.write_text(json.dumps(with_digest(there)))
    return copy


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("dtype", "bfloat16", 'dtype ("float32" in '),
        ("device", "NVIDIA H100", 'device ("cpu" in '),
        ("versions", {"torch": "1.0"}, "versions.torch ("),
        ("versions", {"simlab": "0.0.1"}, "versions.simlab ("),
        ("max_new_tokens", 64, "max_new_tokens (32 in "),
        ("prompts_digest", "another", "prompts_digest ("),
        ("target", {"digest": "another"}, "target.digest ("),
        ("num_shards", 13, "num_shards (12 in "),
    ],
)
def test_parts_of_different_recordings_are_refused_by_name(
    folder: Path, tmp_path: Path, key: str, value: object, said: str
) -> None:
    first, second = parts_of(folder, 0, 1)
    other = changed(second, tmp_path / "other", {key: value})
    assert f"{first} and {other} are parts of different recordings: they differ in {said}" in refusal_of(
        *merge(first, other, "--out", tmp_path / "all")
    )
    assert not (tmp_path / "all").exists()


def test_merge_names_what_is_missing_doubled_or_none(folder: Path, tmp_path: Path) -> None:
    first, second = parts_of(folder, 0, 1)
    (quarter,) = parts_of(folder, 3, count=4)
    out, whole = tmp_path / "all", folder / "one"

    def refusal(*parts: object) -> str:
        said = refusal_of(*merge(*parts, "--out", out))
        assert not out.exists()
        return said

    assert f"of 12 are not in {first}, of part 1/2; record the rest" in refusal(first)
    said = refusal(first, quarter)
    assert f"shard 1, shard 5 and shard 9 of 12 are not in {first} and {quarter}; record the rest" in said
    assert f"{first} and {first} both hold shard 0" in refusal(first, second, first)
    assert f"{second} and {quarter} both hold shard 3" in refusal(first, second, quarter)
    assert f"{whole} is a whole trace, and no part" in refusal(first, whole)
    (tmp_path / "none").mkdir()
    assert "none holds no recording" in refusal(first, tmp_path / "none")
    file = tmp_path / "results.parquet"
    file.write_bytes(b"")
    assert f"{first} is a folder and {file} is none" in refusal(first, file)
    assert "several folders are merged into another; name it with --out" in refusal_of(*merge(first, second))
    for there in (first, whole):
        assert f"{there} is there already; give another --out" in refusal_of(*merge(first, second, "--out", there))
    copy = tmp_path / "copy"
    shutil.copytree(second, copy)
    (copy / "tokens-0001.parquet").unlink()
    assert f"tokens-0001.parquet is missing from the trace {copy}" in refusal_of(
        *merge(first, copy, "--out", tmp_path / "damaged")
    )


def test_merge_refuses_damage_and_goes_on_when_it_is_mended(folder: Path, tmp_path: Path) -> None:
    first, second = parts_of(folder, 0, 1)
    out = tmp_path / "all"
    none = [changed(part, tmp_path / part.name, {"num_shards": 0}) for part in (first, second)]
    assert f"the recording in {none[0]} says that it has 0 shards" in refusal_of(*merge(*none, "--out", out))
    copy = tmp_path / "copy"
    shutil.copytree(second, copy)
    for damaged in ("draft-dflash-0003.parquet", "unfinished/sequences-0003.parquet"):
        whole = (copy / damaged).read_bytes()
        (copy / damaged).write_bytes(whole[:-100])
        assert "is damaged" in refusal_of(*merge(first, copy, "--out", out))
        assert not (out / "manifest.json").exists()
        (copy / damaged).write_bytes(whole)
    other = "unfinished/sequences-0005.parquet"
    (copy / "unfinished" / "sequences-0003.parquet").write_bytes((copy / other).read_bytes())
    assert "the parts do not fit together (the sequences of the shards" in refusal_of(*merge(first, copy, "--out", out))
    assert main(merge(first, second, "--out", out)) == 0
    assert bytes_of(out) == bytes_of(folder / "one")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--dry-run"], "--dry-run estimates a whole recording; leave out --shard"),
        (["--shard", "2/2"], "counted from 0: 0/2 to 1/2; got 2/2"),
    ],
)
def test_usage(folder: Path, tmp_path: Path, more: list[str], said: str) -> None:
    assert said in refusal_of(*command(folder, tmp_path / "x", "0/2", *more))
    assert not (tmp_path / "x").exists()
