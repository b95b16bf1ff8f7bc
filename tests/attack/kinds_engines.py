"""What servers and benchmarks counted, damaged line by line; what must come out follows from the lines themselves."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from attack_cases import Command, Damage, Kind
from attack_judge import HARMLESS, REFUSED
from damage_bytes import damage_bytes

_HEAD = 'engine="{}",model_name="m"'
_VLLM = (
    ("spec_decode_num_drafts", _HEAD, (20, 9)),
    ("spec_decode_num_draft_tokens", _HEAD, (140, 63)),
    ("spec_decode_num_accepted_tokens", _HEAD, (31, 9)),
    *(
        ("spec_decode_num_accepted_tokens_per_pos", f'{_HEAD},position="{at}"', counts)
        for at, counts in enumerate(((20, 5), (6, 2), (3, 1), (1, 1), (1, 0), (0, 0), (0, 0)))
    ),
    ("generation_tokens", _HEAD, (52, 20)),
    ("request_success", _HEAD + ',finished_reason="stop"', (2, 1)),
    ("prompt_tokens", _HEAD, (77, 31)),
)
_SGLANG = (
    ("spec_verify_calls", 'model_name="m"', (29,)),
    ("generation_tokens", 'model_name="m"', (72,)),
    ("num_requests", 'model_name="m"', (3,)),
    ("prompt_tokens", 'model_name="m"', (108,)),
)
_PREFIXES = {"vllm.txt": ("vllm:", _VLLM), "sglang.txt": ("sglang:", _SGLANG)}
_UNREAD = ("prompt_tokens", "# ", "up ")
"""How lines begin, behind the engine's prefix, from which no figure is made."""

_RECORDS = ((9, 13, 2), (11, 17, 1), (9, 10, 0))
"""Rounds, accepted tokens, and by how many more tokens a request ended: of three requests."""

_BENCH = {"spec_decode_num_drafts": 29, "spec_decode_draft_tokens": 203, "spec_decode_accepted_tokens": 40}


def write_scrapes(folder: Path) -> None:
    """Write the files of a server of vLLM's, one of SGLang's, and two benchmarks."""
    folder.mkdir()
    for name, (prefix, families) in _PREFIXES.items():
        lines = ["# TYPE up gauge", "up 1"]
        for family, labels, values in families:
            line = f"# TYPE {prefix}{family} counter"
            lines += [line] if line not in lines else []
            lines += [
                f"{prefix}{family}_total{{{labels.format(number)}}} {value}.0" for number, value in enumerate(values)
            ]
        (folder / name).write_text("\n".join(lines) + "\n")
    rows = [
        {"num_spec_steps": steps, "num_accepted_draft_tokens": accepted, "completion_tokens": steps + accepted + more}
        | {"num_draft_tokens": 7 * steps, "num_spec_tokens": 7, "engine": "vllm"}
        for steps, accepted, more in _RECORDS
    ]
    aiperf = [{"metadata": {"x_request_id": str(n)}, "spec_decode_acceptance": row} for n, row in enumerate(rows)]
    (folder / "aiperf.jsonl").write_text("".join(json.dumps(line) + "\n" for line in aiperf))
    bench = _BENCH | {"completed": 3, "total_output_tokens": 72, "output_throughput": 9.5}
    (folder / "bench.json").write_text(json.dumps(bench, indent=1))


def _import(name: str) -> Command:
    return Command(("import", f"scrapes/{name}", "--trace", "trace", "--json"), codes=(0, 1))


_COMMANDS = {name: _import(name) for name in ("vllm.txt", "sglang.txt", "aiperf.jsonl", "bench.json")}


def _sum(lines: list[str], family: str) -> int | None:
    """The sum of a family's samples, as this file writes them; None without any."""
    found = [re.fullmatch(rf"\w+:{family}_total{{[^}}]*}} (\d+)\.0*", line) for line in lines]
    counts = [int(one[1]) for one in found if one]
    return sum(counts) if counts else None


def _counts(rounds: int | None, accepted: int | None, tokens: int | None, requests: int | None) -> dict[str, object]:
    """What is said of counts; a request's first token is of its prefill."""
    said: dict[str, object] = {"counters.rounds": rounds, "counters.accepted": accepted}
    said |= {"counters.tokens": tokens, "counters.requests": requests}
    decoded = None if tokens is None or requests is None else tokens - requests
    if decoded is None and accepted is not None and rounds:
        decoded = rounds + accepted
    return said | {"acceptance_length": decoded / rounds if decoded is not None and rounds else None}


def _of_vllm(lines: list[str]) -> Mapping[str, object]:
    names = ("spec_decode_num_drafts", "spec_decode_num_accepted_tokens", "generation_tokens", "request_success")
    return _counts(*(_sum(lines, name) for name in names))


def _of_sglang(lines: list[str]) -> Mapping[str, object]:
    rounds, tokens, requests = (
        _sum(lines, name) for name in ("spec_verify_calls", "generation_tokens", "num_requests")
    )
    return _counts(rounds, None, tokens, requests)


def _of_aiperf(lines: list[str]) -> Mapping[str, object]:
    rows = [json.loads(line)["spec_decode_acceptance"] for line in lines]
    names = ("num_spec_steps", "num_accepted_draft_tokens", "completion_tokens")
    rounds, accepted, tokens = (sum(row[name] for row in rows) for name in names)
    return _counts(rounds, accepted, tokens, len(rows))


_EXPLAINED: dict[str, Callable[[list[str]], Mapping[str, object]]] = {
    "vllm.txt": _of_vllm,
    "sglang.txt": _of_sglang,
    "aiperf.jsonl": _of_aiperf,
}

_NO_COUNTS = ("-1.0", "1.5", "NaN", "+Inf", "1e308", "9" * 400, "7" * 5000, "5e-324", "x", "")
_NO_JSON_COUNTS = ("-1", "1.5", "NaN", "1e308", "9" * 400, "7" * 5000, '"x"', "[1]", "true")


def _is_read(line: str) -> bool:
    return not line.partition(":")[2].startswith(_UNREAD) and not line.startswith(_UNREAD)


def _prometheus(name: str) -> Callable[[Path, Random], Damage]:
    def damage(folder: Path, chance: Random) -> Damage:
        path, what = folder / "scrapes" / name, chance.randrange(9)
        lines = path.read_text().splitlines()
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        line, is_read, expected = lines[at], _is_read(lines[at]), ""
        is_comment = line.startswith("#")
        before, _, value = line.rpartition(" ")
        if what == 0:
            lines.insert(chance.randrange(at, len(lines)) + 1, line)
            note, expected = f"line {at} twice", "" if is_comment else REFUSED
        elif what == 1:
            del lines[at]
            note, expected = f"line {at} is gone", HARMLESS if not is_read and not is_comment else ""
        elif what == 2:
            lines[at], lines[other] = lines[other], line
            note = f"lines {at} and {other} have changed places"
        elif what == 3 and not is_comment:
            number = chance.choice(_NO_COUNTS)
            lines[at] = f"{before} {number}"
            note, expected = f"line {at} counts {number:.12}", REFUSED if is_read else ""
        elif what == 4 and not is_comment:
            lines[at] = f"{before} {value}{'0' * chance.choice((1, 400, 5000))}"
            note, expected = f"line {at} with more zeros behind its point", HARMLESS if "." in value else ""
        elif what == 5 and not is_comment:
            lines[at] = f"{before} {int(float(value)) + chance.choice((1, 5, 10**6))}.0"
            note, expected = f"line {at} is {lines[at].rpartition(' ')[2]}", "" if is_read else HARMLESS
        elif what == 6 and "model_name" in line:
            lines[at] = line.replace('model_name="m"', 'model_name="other"')
            note, expected = f"line {at} is of another model", REFUSED
        elif what == 7:
            lines += lines
            note, expected = "two readings one after the other", REFUSED
        else:
            return _bytes(path, chance)
        path.write_text("\n".join(lines) + "\n")
        return Damage(f"{name}: {note}", expected=expected, explained=_EXPLAINED[name](lines))

    return damage


def _bytes(path: Path, chance: Random) -> Damage:
    """Damage without lines: what it makes of a number is not known here."""
    return damage_bytes(path, chance, possible=True)


def _records(folder: Path, chance: Random) -> Damage:
    path, what = folder / "scrapes/aiperf.jsonl", chance.randrange(6)
    lines = path.read_text().splitlines()
    at, expected, note = chance.randrange(len(lines)), "", ""
    row: dict[str, Any] = json.loads(lines[at])
    record = row["spec_decode_acceptance"]
    key = chance.choice(("num_spec_steps", "num_accepted_draft_tokens", "completion_tokens"))
    if what == 0:
        del lines[at]
        note = f"line {at} is gone"
    elif what == 1:
        lines = lines[::-1]
        note, expected = "lines turned round", HARMLESS
    elif what == 2:
        number = chance.choice(_NO_JSON_COUNTS)
        lines[at] = lines[at].replace(f'"{key}": {record[key]}', f'"{key}": {number}')
        path.write_text("\n".join(lines) + "\n")
        return Damage(f"line {at}: {key} is {number:.12}", expected=REFUSED)
    elif what == 3:
        record[key] += chance.choice((1, -1, 3))
        lines[at], note = json.dumps(row), f"line {at}: {key} is {record[key]}"
    elif what == 4:
        histogram = chance.choice(({"999999999": 1}, {"-1": 1}, {"1": -3}, {"x": 1}, {"3": 1.5}, {"9" * 5000: 1}))
        record["acceptance_histogram"] = histogram
        path.write_text("\n".join([*lines[:at], json.dumps(row), *lines[at + 1 :]]) + "\n")
        return Damage(f"line {at}: a histogram {histogram!s:.30}", expected=REFUSED)
    else:
        return _bytes(path, chance)
    path.write_text("\n".join(lines) + "\n")
    return Damage(note, expected=expected, explained=_of_aiperf(lines))


def _bench(folder: Path, chance: Random) -> Damage:
    path = folder / "scrapes/bench.json"
    if chance.random() < 0.2:
        return _bytes(path, chance)
    values = json.loads(path.read_text())
    key = chance.choice(list(_BENCH))
    if chance.random() < 0.5:
        number = chance.choice(_NO_JSON_COUNTS)
        path.write_text(path.read_text().replace(f'"{key}": {values[key]}', f'"{key}": {number}'))
        return Damage(f"{key} is {number:.12}", expected=REFUSED)
    values[key] += chance.choice((1, -3, 10))
    path.write_text(json.dumps(values))
    rounds, drafted, accepted = (values[name] for name in _BENCH)
    explained = _counts(rounds, accepted, 72, 3) | {"counters.drafted": drafted}
    return Damage(f"{key} is {values[key]}", explained=explained)


_INPUTS = ("trace", "scrapes")

KINDS = (
    Kind("vllm-metrics", _INPUTS, _prometheus("vllm.txt"), (_COMMANDS["vllm.txt"],)),
    Kind("sglang-metrics", _INPUTS, _prometheus("sglang.txt"), (_COMMANDS["sglang.txt"],), share=3),
    Kind("request-records", _INPUTS, _records, (_COMMANDS["aiperf.jsonl"],), share=3),
    Kind("benchmark-results", _INPUTS, _bench, (_COMMANDS["bench.json"],), share=2),
)
