"""A recording of tiny random models, whose bytes several tests hold against each other."""

from pathlib import Path

from simlab.real_runner.record.options import RecordOptions


def options_of(folder: Path, out: Path) -> RecordOptions:
    """Shards of two prompts, two turns each, some decided by noise; models and prompts are in a folder."""
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        prompts=folder / "prompts.jsonl",
        out=out,
        max_new_tokens=32,
        temperature=0.8,
        batch_size=2,
        resume=True,
    )


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of a trace but the one that says how long it took."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("recording.json")
    return files
