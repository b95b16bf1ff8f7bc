"""Whether replay is the runner, on the built-in models: everything, for `make verify-real`.

In float32 and bfloat16, at temperature 0 and 1, prompts of the packaged trace are decoded under plain
decoding, the chain and ddtree of three budgets. `replay_is_the_runner` says what is checked. What is
finished is kept in a folder, and a run that was interrupted goes on from there; the page is written at
the end. The exit code is 1 when something is not as it must be.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import torch
from recorded_texts import record_options, record_texts
from replay_is_the_runner import POLICIES, SEED, Checked, check_prompt, checked_from, cut, sampling_at
from tqdm import tqdm
from verify_real_page import Combination, Page

from simlab.ids import content_id
from simlab.real_runner.dflash_files import PACKAGED, find_drafter
from simlab.real_runner.machine import hardware_name, library_versions
from simlab.real_runner.manifests import manifest_of, recording_info
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.sources import Retold, Sources
from simlab.real_runner.target import Target, files_digest
from simlab.traces.files import write_beside
from simlab.traces.manifest import Manifest
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.traces.records import SequenceRecord
from simlab.traces.writer import TraceWriter

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "measurements" / "replay_is_the_runner.md"
TARGET = "smollm2-135m"
DTYPES = ("float32", "bfloat16")
TEMPERATURES = (0.0, 1.0)
TEXTS_A_SHARD = 4


@dataclass(frozen=True)
class Settings:
    """What is verified, and where it is kept."""

    folder: Path
    prompts_a_set: int
    max_new_tokens: int
    device: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs" / "verify-real", help="finished parts")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--prompts", type=int, default=4, help="of each of the four evaluation sets")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a text")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    trace = open_trace(packaged_trace())
    _check_packaged(trace.manifest)
    if given.tokens > trace.manifest.max_new_tokens:
        parser.error(f"the packaged texts have at most {trace.manifest.max_new_tokens} tokens; got {given.tokens}")
    folder = given.runs / _fingerprint(trace, given.device, given.tokens)
    settings = Settings(folder, given.prompts, given.tokens, given.device)
    records = chosen(trace, settings)
    print(f"{len(records)} texts; finished parts are kept in {folder}", file=sys.stderr)
    page = Page(
        made=datetime.now(UTC).date().isoformat(),
        machine=hardware_name(given.device),
        threads=torch.get_num_threads(),
        versions=library_versions(),
        models=(f"{TARGET} ({trace.manifest.target.digest[:12]})", f"{PACKAGED} ({_drafter_digest()[:12]})"),
        stop_token_ids=trace.manifest.stop_token_ids,
        max_new_tokens=given.tokens,
        seed=SEED,
        combinations=tuple(combinations(settings, trace, records)),
    )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(page.text(), encoding="utf-8")
    faults = page.faults()
    print(f"{given.out}: {'FAILED, ' + str(len(faults)) + ' faults' if faults else 'passed'}")
    print(*faults[:20], sep="\n", file=sys.stderr)
    return 1 if faults else 0


def chosen(trace: Trace, settings: Settings) -> list[SequenceRecord]:
    """Some prompts of each set, with all their turns: first those whose text stops by itself, at most half."""
    indices: list[int] = []
    for dataset in dict.fromkeys(record.prompt.dataset for record in trace.sequences()):
        turns: dict[str, list[SequenceRecord]] = {}
        for record in trace.sequences():
            if record.prompt.dataset == dataset:
                turns.setdefault(record.prompt.prompt_id, []).append(record)
        stopping = [name for name, texts in turns.items() if any(text.stop_reason == "stop" for text in texts)]
        first = stopping[: settings.prompts_a_set // 2]
        rest = [name for name in turns if name not in first]
        num = min(settings.prompts_a_set - len(first), len(rest))
        names = {*first, *(rest[i * len(rest) // num] for i in range(num))}
        indices += [record.index for name in turns if name in names for record in turns[name]]
    found = trace.records([trace.draft_name()], indices)
    return [cut(record, settings.max_new_tokens) for record in found]


def combinations(settings: Settings, trace: Trace, records: Sequence[SequenceRecord]) -> Iterator[Combination]:
    """Every dtype at every temperature, in order; what is missing is run first."""
    total, done = len(DTYPES) * len(TEMPERATURES) * len(records), _num_done(settings.folder)
    num = len(POLICIES)
    with tqdm(total=total * num, initial=done * num, desc="verify", unit="run", smoothing=0) as bar:

        def begins(where: str, label: str) -> None:
            bar.set_postfix_str(f"{where}, {label}", refresh=False)
            bar.update(1)

        for dtype in DTYPES:
            loaded = cache(partial(_load, dtype, settings.device))
            for temperature in TEMPERATURES:
                yield _combination(settings, trace, records, dtype, temperature, loaded, begins)


def _combination(
    settings: Settings,
    trace: Trace,
    records: Sequence[SequenceRecord],
    dtype: str,
    temperature: float,
    loaded: Callable[[], tuple[Models, Target]],
    begins: Callable[[str, str], None],
) -> Combination:
    folder = settings.folder / f"{dtype}-temperature-{temperature:g}"
    paths = {record.index: folder / f"{record.index:04d}.json" for record in records}
    missing = [record for record in records if not paths[record.index].exists()]
    against = dtype == "float32"
    references = {record.index: record for record in records}
    if missing and against and temperature > 0:
        references = recorded(settings, loaded()[0], trace.manifest, records, temperature)
    for record in missing:
        where = f"{dtype}, temperature {temperature:g}, {record.prompt.prompt_id}"
        found = check_prompt(
            *loaded(),
            references[record.index],
            sampling_at(temperature),
            settings.max_new_tokens,
            against,
            on_policy=partial(begins, where),
        )
        _write(paths[record.index], found)
    return Combination(dtype, temperature, tuple(_read(path) for path in paths.values()))


def _write(path: Path, checked: Checked) -> None:
    content = json.dumps(checked.to_json(), indent=1).encode()
    write_beside(path, lambda file: file.write(content))


def _read(path: Path) -> Checked:
    return checked_from(json.loads(path.read_text(encoding="utf-8")))


def _num_done(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*-temperature-*/*.json"))


def _load(dtype: str, device: str) -> tuple[Models, Target]:
    """Both models, and the target in float32."""
    models = load_models(TARGET, PACKAGED, dtype, device)
    target32 = models.target if dtype == "float32" else load_models(TARGET, PACKAGED, "float32", device).target
    return models, target32


def recorded(
    settings: Settings, models: Models, like: Manifest, records: Sequence[SequenceRecord], temperature: float
) -> dict[int, SequenceRecord]:
    """The same prompts, recorded at another temperature: a trace of its own, read back from its files.

    The keys are the indices of the prompts in the packaged trace.
    """
    folder, sampling = settings.folder / f"trace-temperature-{temperature:g}", sampling_at(temperature)
    options = replace(record_options(sampling, settings.max_new_tokens), target=TARGET, draft=PACKAGED)
    options = replace(options, device=settings.device, batch_size=TEXTS_A_SHARD)
    asked = Sources(tuple(Retold((replace(record, tokens=None),)) for record in records), like)
    manifest = replace(manifest_of(options, models, asked), sampling=sampling, max_new_tokens=settings.max_new_tokens)
    shards = [records[i : i + TEXTS_A_SHARD] for i in range(0, len(records), TEXTS_A_SHARD)]
    writer = TraceWriter(folder, manifest, len(shards), resume=True)
    if not writer.is_complete:
        for number, shard in enumerate(tqdm(shards, desc=f"recording at temperature {temperature:g}", unit="shard")):
            if not writer.is_done(number):
                prompts = [record.prompt for record in shard]
                found = record_texts(models, prompts, sampling, settings.max_new_tokens, number * TEXTS_A_SHARD)
                writer.write(number, found)
        writer.finish(recording_info(0.0, 0, 0))
    trace = open_trace(folder)
    read_back = trace.records([trace.draft_name()])
    return {record.index: again for record, again in zip(records, read_back, strict=True)}


def _check_packaged(manifest: Manifest) -> None:
    """The trace must be of the models that are run; else differences would say nothing.

    Raises:
        SystemExit: it is not.
    """
    (draft,) = manifest.draft_sets.values()
    if draft.model.digest != _drafter_digest():
        sys.exit("the packaged trace was recorded with another drafter than the packaged one; record it again")


def _drafter_digest() -> str:
    folder = find_drafter(PACKAGED).folder
    return files_digest([folder / "config.json", folder / "model.safetensors"])


def _fingerprint(trace: Trace, device: str, max_new_tokens: int) -> str:
    """What finished parts depend on: the code, the models, the machine and its libraries."""
    names = sorted(name for name in sys.modules if name.startswith("simlab."))
    files = [getattr(sys.modules[name], "__file__", None) for name in names]
    code = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files if file)).hexdigest()
    known = [code, trace.text_id, _drafter_digest(), hardware_name(device), torch.get_num_threads(), max_new_tokens]
    return content_id([*known, library_versions(), [one.policy_id for one in POLICIES]])


if __name__ == "__main__":
    sys.exit(main())
