"""What servers and benchmarks counted, damaged count by count; what must come out follows from the text itself."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from attack_cases import GOOD, HARMLESS, REFUSED, Damage, Kind
from damage_files import damage_bytes
from damage_values import rearranged

_COUNT = re.compile(
    r'^\w+:(?P<family>\w+)_total\{.*\} (?P<of_metrics>\d+(\.0*)?)$|"(?P<key>\w+)": (?P<of_json>\d+)(?=[,}\n])',
    re.MULTILINE,
)
_NAMES = {
    "counters.rounds": ("spec_decode_num_drafts", "spec_verify_calls", "num_spec_steps"),
    "counters.accepted": (
        *("spec_decode_num_accepted_tokens", "num_accepted_draft_tokens", "spec_decode_accepted_tokens"),
    ),
    "counters.tokens": ("generation_tokens", "completion_tokens", "total_output_tokens"),
    "counters.requests": ("request_success", "num_requests", "completed"),
}
"""Counts by their places in what `simlab import` prints, and what engines and benchmarks call them."""

_OTHERS = ("spec_decode_num_draft_tokens", "spec_decode_draft_tokens", "spec_decode_num_accepted_tokens_per_pos")
_CHANGED = {*_OTHERS, *(name for names in _NAMES.values() for name in names)} - {"total_output_tokens", "completed"}
"""Counts that must be whole numbers."""

_NO_COUNTS = ("-1", "1.5", "NaN", "1e308", "9" * 400, "7" * 5000)
_NOT_IN_METRICS = (*_NO_COUNTS, "+Inf", "5e-324", "x", "")
_NOT_IN_JSON = (*_NO_COUNTS, '"x"', "[1]", "true")
_HISTOGRAMS = ('{"999999999": 1}', '{"-1": 1}', '{"1": -3}', '{"x": 1}', '{"3": 1.5}', f'{{"{"9" * 5000}": 1}}')


def _name(count: re.Match[str]) -> str:
    return count["family"] or count["key"]


def _explained(text: str, is_by_request: bool) -> dict[str, object]:
    """What follows from the counts of a text; a request's first token is of its prefill, and of no round."""
    sums: Counter[str] = Counter()
    for count in _COUNT.finditer(text):
        sums[_name(count)] += int(float(count["of_metrics"] or count["of_json"]))
    if is_by_request:
        sums["completed"] = len(text.splitlines())
    said = {place: next((sums[name] for name in names if name in sums), None) for place, names in _NAMES.items()}
    rounds, accepted, tokens, requests = said.values()
    decoded = None if tokens is None or requests is None else tokens - requests
    if decoded is None and accepted is not None and rounds:
        decoded = rounds + accepted
    return {**said, "acceptance_length": decoded / rounds if decoded is not None and rounds else None}


def _by_lines(text: str, chance: Random) -> tuple[str, Damage]:
    """Lines gone, twice or in another order."""
    lines = text.splitlines()
    is_metrics, at = not lines[0].startswith("{"), chance.randrange(len(lines))
    is_comment, is_unread = lines[at].startswith("#"), "prompt_tokens" in lines[at] or lines[at].startswith("up ")
    expected = (
        (lines[:at] + lines[at + 1 :], "is gone", (HARMLESS,) if is_unread and not is_comment else GOOD),
        (lines[: at + 1] + lines[at:], "stands there twice", (REFUSED,) if is_metrics and not is_comment else GOOD),
        (lines + lines, "and all others stand there twice", (REFUSED,) if is_metrics else GOOD),
        (lines[::-1], "and all others stand in another order", GOOD if is_metrics else (HARMLESS,)),
        (rearranged(lines, chance)[0], "is at another place, or something like it", GOOD),
    )
    changed, note, allowed = chance.choice(expected[: 4 if is_metrics else 5])
    text = "".join(f"{line}\n" for line in changed)
    return text, Damage(f"line {at} {note}", allowed, explained=_explained(text, not is_metrics))


def _by_count(text: str, chance: Random, is_by_request: bool) -> tuple[str, Damage]:
    """A count that is another one, that is none, or that is written in another way."""
    count = chance.choice([count for count in _COUNT.finditer(text) if _name(count) in _CHANGED])
    group, what = "of_metrics" if count["family"] else "of_json", chance.randrange(3)
    value = int(float(count[group]))
    new = str(max(0, value + chance.choice((1, 5, -1, 10**6))))
    allowed: Sequence[str] = GOOD
    if what == 0:
        new, allowed = chance.choice(_NOT_IN_METRICS if count["family"] else _NOT_IN_JSON), (REFUSED,)
    elif what == 1 and count["family"]:
        new, allowed = f"{count[group]}{'0' * chance.choice((1, 400, 5000))}", (HARMLESS,)
    changed = text[: count.start(group)] + new + text[count.end(group) :]
    explained = _explained(changed, is_by_request) if what else None
    return changed, Damage(f"{_name(count)} is {new:.20} instead of {value}", allowed, explained=explained)


def _counts(name: str) -> Callable[[Path, Random], Damage]:
    """Damage to the file of one engine or benchmark."""

    def damage(folder: Path, chance: Random) -> Damage:
        path, what = folder / "scrapes" / name, chance.random()
        text, is_by_request = path.read_text(), name.endswith(".jsonl")
        if what < 0.2:
            return Damage(damage_bytes(path, chance), GOOD)
        if what < 0.5 and not name.endswith(".json"):
            text, done = _by_lines(text, chance)
        elif what < 0.6 and is_by_request:
            histogram = chance.choice(_HISTOGRAMS)
            text = text.replace('"num_spec_tokens"', f'"acceptance_histogram": {histogram}, "num_spec_tokens"', 1)
            done = Damage(f"a histogram {histogram:.30}", (REFUSED,))
        elif what < 0.6 and 'model_name="m"' in text:
            text, done = text.replace('model_name="m"', 'model_name="other"', 1), Damage("of two models", (REFUSED,))
        else:
            text, done = _by_count(text, chance, is_by_request)
        path.write_text(text)
        return done

    return damage


KINDS = tuple(
    Kind(kind, ("trace", "scrapes"), _counts(name), (f"import scrapes/{name} --trace trace --json",), 3)
    for kind, name in {
        "vllm-metrics": "vllm.txt",
        "sglang-metrics": "sglang.txt",
        "request-records": "aiperf.jsonl",
        "benchmark-results": "bench.json",
    }.items()
)
