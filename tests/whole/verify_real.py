"""Whether replay is the runner, on the built-in models: everything, for `make verify-real`.

In float32 and bfloat16, at temperature 0 and 1, prompts of the packaged trace are decoded: short texts under
every policy of the table in all its variants, longer ones under plain decoding, the chain and ddtree of three
budgets. `replay_is_the_runner` says what is checked. What is finished is kept in a folder, and a run that was
interrupted goes on from there; the page is written at the end. The exit code is 1 when something is not as it
must be.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import torch
from places import REPOSITORY
from policy_variants import every_policy
from recorded_texts import record_options, record_texts
from replay_is_the_runner import POLICIES, SEED, Checked, check_prompt, checked_from, cut, sampling_at
from tqdm import tqdm
from verify_real_page import EVERY, LONG, Combination, Page

from simlab.ids import content_id
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.networks.drafter import PACKAGED, find_drafter
from simlab.real_runner.profile.machine import hardware_name, library_versions
from simlab.real_runner.record.manifests import manifest_of, recording_info
from simlab.real_runner.record.sources import Sources
from simlab.real_runner.targets.hub_files import files_digest
from simlab.real_runner.targets.model import Target
from simlab.studies.confirm.confirm import artefacts_of_models
from simlab.traces.format.files import write_beside
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest import Manifest
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.traces.writer import TraceWriter

PAGE = REPOSITORY / "docs" / "measurements" / "replay_is_the_runner.md"
TARGET = "smollm2-135m"
DTYPES = ("float32", "bfloat16")
TEMPERATURES = (0.0, 1.0)
TEXTS_A_SHARD = 4


@dataclass(frozen=True)
class Part:
    """Some policies on some texts, and where what is finished is kept.

    Attributes:
        name: `EVERY` or `LONG`.
        records: of the packaged trace, cut.
        policies: by dtype, since prices are of one.
        against: whether float32 runs are held against a record.
    """

    name: str
    folder: Path
    records: tuple[SequenceRecord, ...]
    max_new_tokens: int
    policies: Mapping[str, tuple[NamedPolicy, ...]]
    against: bool
    device: str

    @property
    def num_runs(self) -> int:
        """In all dtypes and at all temperatures."""
        return len(TEMPERATURES) * len(self.records) * sum(map(len, self.policies.values()))

    @property
    def num_done(self) -> int:
        """Of these."""
        return sum(
            len(found) * sum(1 for _ in self.folder.glob(f"{dtype}-*/*.json")) for dtype, found in self.policies.items()
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs" / "verify-real", help="finished parts")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--only", choices=(EVERY, LONG), help="one part alone, and a page of it")
    parser.add_argument("--prompts", type=int, default=4, help="for long texts, of each of the four evaluation sets")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of a long text")
    parser.add_argument("--every-tokens", type=int, default=64, help="new tokens of a text under every policy")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    trace = open_trace(packaged_trace())
    _check_packaged(trace.manifest)
    most = trace.manifest.max_new_tokens
    if max(given.tokens, given.every_tokens) > most:
        parser.error(f"the packaged texts have at most {most} tokens; got {given.tokens} and {given.every_tokens}")
    parts = [part for part in parts_of(trace, given) if given.only in (None, part.name)]
    for part in parts:
        print(f"{part.name}: {len(part.records)} texts; finished ones are kept in {part.folder}", file=sys.stderr)
    page = Page(
        made=datetime.now(UTC).date().isoformat(),
        machine=hardware_name(given.device),
        threads=torch.get_num_threads(),
        versions=library_versions(),
        models=(f"{TARGET} ({trace.manifest.target.digest[:12]})", f"{PACKAGED} ({_drafter_digest()[:12]})"),
        stop_token_ids=trace.manifest.stop_token_ids,
        seed=SEED,
        combinations=tuple(combinations(trace, parts)),
    )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(page.text(), encoding="utf-8")
    faults = page.faults()
    print(f"{given.out}: {'FAILED, ' + str(len(faults)) + ' faults' if faults else 'passed'}")
    print(*faults[:20], sep="\n", file=sys.stderr)
    return 1 if faults else 0


def parts_of(trace: Trace, given: argparse.Namespace) -> list[Part]:
    """Every policy on a short text of each set; then the first few policies on more and longer ones."""
    found = []
    for name, tokens, records in (
        (EVERY, given.every_tokens, soonest(trace, given.every_tokens)),
        (LONG, given.tokens, chosen(trace, given.prompts, given.tokens)),
    ):
        policies = {
            dtype: tuple(every_policy(artefacts_of_models(None, trace, None, dtype)) if name == EVERY else POLICIES)
            for dtype in DTYPES
        }
        folder = given.runs / _fingerprint(trace, given.device, tokens, policies)
        found.append(Part(name, folder, tuple(records), tokens, policies, name == LONG, given.device))
    return found


def soonest(trace: Trace, max_new_tokens: int) -> list[SequenceRecord]:
    """Of each set the text that stops by itself the soonest."""
    stopping = [record for record in trace.sequences() if record.stop_reason == "stop"]
    found: dict[str, SequenceRecord] = {}
    for record in sorted(stopping, key=lambda record: len(record.text)):
        found.setdefault(record.prompt.dataset, record)
    indices = sorted(record.index for record in found.values())
    return [cut(record, max_new_tokens) for record in trace.records([trace.draft_name()], indices)]


def chosen(trace: Trace, prompts_a_set: int, max_new_tokens: int) -> list[SequenceRecord]:
    """Some prompts of each set, with all their turns: first those whose text stops by itself, at most half."""
    indices: list[int] = []
    for dataset in dict.fromkeys(record.prompt.dataset for record in trace.sequences()):
        turns: dict[str, list[SequenceRecord]] = {}
        for record in trace.sequences():
            if record.prompt.dataset == dataset:
                turns.setdefault(record.prompt.prompt_id, []).append(record)
        stopping = [name for name, texts in turns.items() if any(text.stop_reason == "stop" for text in texts)]
        first = stopping[: prompts_a_set // 2]
        rest = [name for name in turns if name not in first]
        num = min(prompts_a_set - len(first), len(rest))
        names = {*first, *(rest[i * len(rest) // num] for i in range(num))}
        indices += [record.index for name in turns if name in names for record in turns[name]]
    found = trace.records([trace.draft_name()], indices)
    return [cut(record, max_new_tokens) for record in found]


def combinations(trace: Trace, parts: Sequence[Part]) -> Iterator[Combination]:
    """Every part in every dtype at every temperature, in order; what is missing is run first."""
    total, done = sum(part.num_runs for part in parts), sum(part.num_done for part in parts)
    with tqdm(total=total, initial=done, desc="verify", unit="run", smoothing=0) as bar:

        def begins(where: str, label: str) -> None:
            bar.set_postfix_str(f"{where}, {label}", refresh=False)
            bar.update(1)

        for part in parts:
            for dtype in DTYPES:
                loaded = cache(partial(_load, dtype, part.device))
                for temperature in TEMPERATURES:
                    yield _combination(trace, part, dtype, temperature, loaded, begins)


def _combination(
    trace: Trace,
    part: Part,
    dtype: str,
    temperature: float,
    loaded: Callable[[], tuple[Models, Target]],
    begins: Callable[[str, str], None],
) -> Combination:
    folder = part.folder / f"{dtype}-temperature-{temperature:g}"
    paths = {record.index: folder / f"{record.index:04d}.json" for record in part.records}
    missing = [record for record in part.records if not paths[record.index].exists()]
    against = part.against and dtype == "float32"
    references = {record.index: record for record in part.records}
    if missing and against and temperature > 0:
        references = recorded(part, loaded()[0], trace.manifest, temperature)
    for record in missing:
        where = f"{dtype}, temperature {temperature:g}, {record.prompt.prompt_id}"
        found = check_prompt(
            *loaded(),
            references[record.index],
            sampling_at(temperature),
            part.max_new_tokens,
            against,
            part.policies[dtype],
            partial(begins, where),
        )
        _write(paths[record.index], found)
    checked = tuple(_read(path) for path in paths.values())
    return Combination(part.name, dtype, temperature, part.max_new_tokens, checked)


def _write(path: Path, checked: Checked) -> None:
    content = json.dumps(checked.to_json(), indent=1).encode()
    write_beside(path, lambda file: file.write(content))


def _read(path: Path) -> Checked:
    return checked_from(json.loads(path.read_text(encoding="utf-8")))


def _load(dtype: str, device: str) -> tuple[Models, Target]:
    """Both models, and the target in float32."""
    models = load_models(TARGET, PACKAGED, dtype, device)
    target32 = models.target if dtype == "float32" else load_models(TARGET, PACKAGED, "float32", device).target
    return models, target32


def recorded(part: Part, models: Models, like: Manifest, temperature: float) -> dict[int, SequenceRecord]:
    """The same prompts, recorded at another temperature: a trace of its own, read back from its files.

    The keys are the indices of the prompts in the packaged trace.
    """
    folder, sampling = part.folder / f"trace-temperature-{temperature:g}", sampling_at(temperature)
    options = replace(record_options(sampling, part.max_new_tokens), target=TARGET, draft=PACKAGED)
    options = replace(options, device=part.device, batch_size=TEXTS_A_SHARD)
    records = part.records
    asked = Sources(tuple((replace(record, tokens=None),) for record in records), like)
    manifest = replace(manifest_of(options, models, asked), sampling=sampling, max_new_tokens=part.max_new_tokens)
    shards = [records[i : i + TEXTS_A_SHARD] for i in range(0, len(records), TEXTS_A_SHARD)]
    writer = TraceWriter(folder, manifest, len(shards), resume=True)
    if not writer.is_complete:
        for number, shard in enumerate(tqdm(shards, desc=f"recording at temperature {temperature:g}", unit="shard")):
            if not writer.is_done(number):
                prompts = [record.prompt for record in shard]
                found = record_texts(models, prompts, sampling, part.max_new_tokens, number * TEXTS_A_SHARD)
                writer.write(number, found)
        writer.finish(recording_info(0.0, 0, 0, (part.device,)))
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


def _fingerprint(trace: Trace, device: str, max_new_tokens: int, policies: Mapping[str, Sequence[NamedPolicy]]) -> str:
    """What finished parts depend on: the code, the models, the policies, the machine and its libraries."""
    names = sorted(name for name in sys.modules if name.startswith("simlab."))
    files = [getattr(sys.modules[name], "__file__", None) for name in [*names, check_prompt.__module__]]
    code = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files if file)).hexdigest()
    known = [code, trace.text_id, _drafter_digest(), hardware_name(device), torch.get_num_threads(), max_new_tokens]
    return content_id(
        [*known, library_versions(), [[policy.policy_id for policy in policies[dtype]] for dtype in DTYPES]]
    )


if __name__ == "__main__":
    sys.exit(main())
