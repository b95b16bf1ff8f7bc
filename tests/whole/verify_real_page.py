"""The page that `verify_real.py` writes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from replay_is_the_runner import CLOSE, PLAIN, Against, Checked, Ran, faults_of, verdict_on

from simlab.real_runner.confirm.audit import Verdict

EVERY, LONG = "every", "long"
"""The parts: every policy on a few short texts; plain decoding, the chain and three trees on more and longer ones."""

HOW = """\
Each prompt is decoded under every policy of a part, in one process; noise seed {seed}, no top-k or top-p. Prompts are
of the packaged trace; what a second turn asks holds the trace's own first answer. Prices, 3-gram and fitted tables are
those that come with simlab. For every text of every policy:

* **Own rows.** The drafter's rows that the policy saw are replayed on the text that came out, round by round and by
  the engine of `simlab replay`. The rounds (roots, trees, accepted paths, committed tokens, clipping; in the engine
  the size of each tree) must be those of the run, without tolerance, in both dtypes.
* **Lossless.** Each token is audited against a teacher-forced float32 pass with the same noise: `exact`, `ties(n)` or
  `FAILED`. The worst gap is the largest error of a logit difference that a token needs to be explained; the bound is
  twice the largest error of such differences along the plain texts of the same dtype and temperature.
"""

RECORD = """\
The rounds of the long texts are held against the replay of a recorded trace of the same prompts: the packaged one at
temperature 0, one recorded for this page at temperature 1. A record is made in dense passes over whole texts and in
batches, so sums are taken in another order. Every difference is listed below with its gap: the difference of path
log-probability, in the record, between the nodes that changed places. A gap above {close:g} nat, or a difference
without one, is a failure. Log-probabilities are on a grid of 2^-16 nat, so a gap may be 0. Where ranks alone changed
places, the tree and the round are the same.
"""


@dataclass(frozen=True)
class Combination:
    """All prompts of a part in one dtype at one temperature."""

    part: str
    dtype: str
    temperature: float
    max_new_tokens: int
    checked: tuple[Checked, ...]

    @property
    def name(self) -> str:
        return f"{self.dtype}, temperature {self.temperature:g}"

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.checked[0].runs]

    def runs(self, label: str) -> list[Ran]:
        return [checked.run(label) for checked in self.checked]


@dataclass(frozen=True)
class Page:
    """Everything that was found, and on what."""

    made: str
    machine: str
    threads: int
    versions: Mapping[str, str]
    models: tuple[str, str]
    stop_token_ids: tuple[int, ...]
    seed: int
    combinations: tuple[Combination, ...]

    def part(self, name: str) -> list[Combination]:
        """Of one part, in order; none where it was left out."""
        return [combination for combination in self.combinations if combination.part == name]

    def bound(self, like: Combination) -> float:
        """The largest of all plain texts in its dtype and at its temperature."""
        key = (like.dtype, like.temperature)
        same = (combination for combination in self.combinations if (combination.dtype, combination.temperature) == key)
        return max(checked.bound for one in same for checked in one.checked)

    def faults(self) -> list[str]:
        """What must not be; nothing when all is well."""
        found = [
            f"{combination.name}, {fault}"
            for combination in self.combinations
            for checked in combination.checked
            for fault in faults_of(checked, self.bound(combination), self.stop_token_ids, combination.max_new_tokens)
        ]
        for dtype in dict.fromkeys(combination.dtype for combination in self.combinations):
            ends = sum(
                (_ends(combination) for combination in self.combinations if combination.dtype == dtype), Counter[str]()
            )
            found += [f"{dtype}: no text ended by {kind}" for kind in ("length", "stop, inside") if not ends[kind]]
        return found

    def text(self) -> str:
        """Markdown."""
        parts = [self._head()]
        if self.part(EVERY):
            parts.append(self._every())
        if self.part(LONG):
            parts += [self._long(), self._ends_table(), self._record(), self._differences(), self._ties()]
        return "\n".join(parts)

    def _head(self) -> str:
        faults = self.faults()
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            "# Replay is the runner",
            "",
            f"`make verify-real`, {self.made}, on {self.machine}, threads: {self.threads}; {versions}.",
            f"Target {self.models[0]}, drafter {self.models[1]}.",
            "",
            "**Passed.**" if not faults else f"**FAILED**, {len(faults)} faults:",
            "",
            *(f"* {fault}" for fault in faults),
            *([""] if faults else []),
            HOW.format(seed=self.seed),
        ]
        return "\n".join(lines)

    def _every(self) -> str:
        """One row a policy: sums over dtypes and temperatures, and the verdict in each."""
        found = self.part(EVERY)
        rows = []
        for label in found[0].labels:
            runs = [run for combination in found for run in combination.runs(label)]
            num_rounds = sum(run.num_rounds for run in runs)
            rows.append(
                [
                    f"`{label}`",
                    str(sum(len(run.text) for run in runs)),
                    str(num_rounds),
                    f"{sum(run.num_drafted for run in runs) / num_rounds:.1f}",
                    f"{sum(not run.unequal for run in runs)} of {len(runs)}",
                    f"{sum(not run.engine for run in runs)} of {len(runs)}",
                    *(str(self._verdict(combination, label)) for combination in found),
                ]
            )
        heads = ["policy", "tokens", "rounds", "drafted a round", "own rows give the same rounds", "so does the engine"]
        heads += [combination.name for combination in found]
        texts = f"{_texts(found[0])}; {found[0].max_new_tokens} new tokens at most, in each dtype at each temperature."
        return _section("Every policy", f"{texts}\n\n{_table(heads, rows, numbers_from=1)}")

    def _long(self) -> str:
        rows = []
        for combination in self.part(LONG):
            for label in combination.labels:
                runs = combination.runs(label)
                verdict = self._verdict(combination, label)
                same = sum(run.text == plain.text for run, plain in zip(runs, combination.runs(PLAIN), strict=True))
                rows.append(
                    [
                        *(combination.dtype, f"{combination.temperature:g}", label),
                        str(sum(len(run.text) for run in runs)),
                        str(sum(run.num_rounds for run in runs)),
                        f"{sum(not run.unequal and not run.engine for run in runs)} of {len(runs)}",
                        str(verdict),
                        f"{verdict.worst_gap:.2g} ({verdict.bound:.2g})",
                        f"{same} of {len(runs)}",
                    ]
                )
        heads = ["dtype", "temperature", "policy", "tokens", "rounds", "own rows give the same rounds"]
        heads += ["lossless", "worst gap (bound)", "text as in plain decoding"]
        combination = self.part(LONG)[0]
        texts = f"{_texts(combination)}; {combination.max_new_tokens} new tokens at most."
        return _section("Long texts", f"{texts}\n\n{_table(heads, rows, numbers_from=3)}")

    def _verdict(self, combination: Combination, label: str) -> Verdict:
        bound = self.bound(combination)
        found = Verdict("exact", bound=bound)
        for checked in combination.checked:
            found += verdict_on(checked, label, bound, self.stop_token_ids, combination.max_new_tokens)
        return found

    def _ends_table(self) -> str:
        kinds = ["stop", "stop, inside", "length", "length, inside"]
        rows = []
        for combination in self.part(LONG):
            for label in combination.labels:
                ends = _ends(combination, [label])
                rows.append(
                    [combination.dtype, f"{combination.temperature:g}", label, *(str(ends[kind]) for kind in kinds)]
                )
        heads = ["dtype", "temperature", "policy", "ended by a stop token", "of these inside an accepted path"]
        heads += ["ended by the limit", "of these inside an accepted path"]
        return _section("How long texts ended", _table(heads, rows, numbers_from=3))

    def _record(self) -> str:
        rows = []
        for combination, label, found in self._compared():
            rows.append(
                [
                    *(f"{combination.temperature:g}", label),
                    f"{sum(not there.parting for there in found)} of {len(found)}",
                    str(sum(there.num_rounds for there in found)),
                    str(sum(there.num_rounds - len(there.rounds) for there in found)),
                    str(sum(there.num_unpaired for there in found)),
                    str(sum(there.num_rows for there in found)),
                    str(sum(len(there.rows) for there in found)),
                    f"{max(there.largest for there in found):.2g}",
                ]
            )
        heads = ["temperature", "policy", "texts equal", "rounds compared", "rounds equal", "rounds at other roots"]
        heads += ["rows compared", "depths at which ranks changed places", "largest difference of a log-probability"]
        return _section(
            "In float32, against the record", f"{RECORD.format(close=CLOSE)}\n{_table(heads, rows, numbers_from=2)}"
        )

    def _compared(self) -> Iterator[tuple[Combination, str, list[Against]]]:
        for combination in self.part(LONG):
            for label in combination.labels:
                found = [run.against for run in combination.runs(label) if run.against is not None]
                if found:
                    yield combination, label, found

    def _differences(self) -> str:
        lines = []
        for combination in self.part(LONG):
            for checked in combination.checked:
                for run in checked.runs:
                    there = run.against
                    says = [] if there is None else [there.parting, *there.rounds, *there.rows]
                    where = f"temperature {combination.temperature:g}, {checked.name}, {run.label}"
                    lines += [f"* {where}: {what}" for what in says if what]
        return _section("Every difference from the record", "\n".join(lines or ["None."]))

    def _ties(self) -> str:
        """Tokens that are not the float32 choice; policies that have the same one stand together."""
        seen: dict[tuple[str, str, int, int, int], dict[str, float]] = {}
        for combination in self.part(LONG):
            for checked in combination.checked:
                for run in checked.runs:
                    for index, token, loss in run.others:
                        key = (combination.name, checked.name, index, run.text[index], token)
                        seen.setdefault(key, {})[run.label] = loss
        rows = [
            [name, text, str(index), str(ours), str(theirs), f"{max(found.values()):.2g}", ", ".join(found)]
            for (name, text, index, ours, theirs), found in seen.items()
        ]
        heads = ["run", "text", "token", "emitted", "float32 has", "gap", "policies"]
        return _section(
            "Every token of a long text that is not the float32 choice", _table(heads, rows, 2) if rows else "None."
        )


def _ends(combination: Combination, labels: Sequence[str] | None = None) -> Counter[str]:
    """How the texts of some policies ended, and which of them inside an accepted path."""
    found: Counter[str] = Counter()
    for label in combination.labels if labels is None else labels:
        for run in combination.runs(label):
            found[run.stop_reason] += 1
            found[f"{run.stop_reason}, inside"] += run.inside
    return found


def _texts(combination: Combination) -> str:
    """How many texts, of how many prompts of which sets."""
    sets = ", ".join(
        f"{num} of {name}" for name, num in Counter(checked.dataset for checked in combination.checked).items()
    )
    num_prompts = len({(checked.dataset, checked.prompt_id) for checked in combination.checked})
    return f"{num_prompts} prompts, {len(combination.checked)} texts: {sets}"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int) -> str:
    sides = ["---" if i < numbers_from else "---:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, sides, *rows))
