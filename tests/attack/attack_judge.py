"""Which class a case belongs to, from what its command left: exit code, output, files, time and memory."""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import attack_run
from attack_cases import (
    GOOD,
    HANG,
    HARMLESS,
    MEMORY,
    OTHER,
    REFUSED,
    TRACEBACK,
    UNTIDY,
    WRONG,
    Damage,
)
from attack_run import BROKEN_PIPE, SETTINGS, Ran, canonical

PERSON_CAN_FIX = 2

_CODES = {"confirm": (0, 1), "import": (0, 1), "crosscheck": (0, 1)}
"""Exit codes of finished commands, where 1 is an answer."""

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)|^Fatal Python error", re.MULTILINE)
_PANIC = "panicked at"
"""What Rust prints before Python hears of it: no traceback where a sentence and exit code 2 come after it."""

_BAR = "%|"
_LONGEST = 4000
_MARKS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_DIGEST = re.compile(r'"(?:sha256|\w*bytes\w*)": [^,\n]*')


class Judged(NamedTuple):
    """A class, and why."""

    outcome: str
    why: str = ""


def codes_of(command: str, setting: str = "") -> tuple[int, ...]:
    """Exit codes of a command that is not refused, by its first word."""
    piped = (BROKEN_PIPE,) if setting and SETTINGS[setting].is_silent else ()
    return (*_CODES.get(command, (0,)), *piped)


def figures_of(ran: Ran, setting: str = "") -> dict[str, str]:
    """What a command says as values, by where it says it: standard output, if somebody can read it, and each file."""
    silent = SETTINGS[setting].is_silent
    return {**({} if silent else {"stdout": canonical(ran.out)}), **ran.files}


def judge(ran: Ran, damage: Damage, command: str, undamaged: Ran | None) -> Judged:
    """The class of a case.

    Args:
        ran: what its command left.
        damage: what was done to the input.
        command: the first word of it.
        undamaged: what the same command left with the undamaged input; None: there are no figures to compare with.
    """
    if ran.peak_bytes > attack_run.MOST_BYTES:
        return Judged(MEMORY, f"{ran.peak_bytes / (1 << 30):.1f} GB resident")
    if ran.seconds > attack_run.MOST_SECONDS:
        return Judged(HANG, f"{ran.seconds:.0f} s")
    if _TRACEBACK.search(ran.err) or (_PANIC in ran.err and ran.code != PERSON_CAN_FIX):
        return Judged(TRACEBACK, last_line(ran.err))
    if ran.code not in (*codes_of(command, damage.setting), PERSON_CAN_FIX):
        return Judged(TRACEBACK, f"exit code {ran.code}: {last_line(ran.err)}")
    judged = (_refused if ran.code == PERSON_CAN_FIX else _finished)(ran, damage, undamaged)
    if judged.outcome in GOOD and judged.outcome not in damage.allowed:
        return Judged(WRONG, f"{judged.outcome}, not {' or '.join(damage.allowed)}: {judged.why}")
    return judged


def _finished(ran: Ran, damage: Damage, undamaged: Ran | None) -> Judged:
    figures = figures_of(ran, damage.setting)
    before = figures if undamaged is None else figures_of(undamaged, damage.setting)
    if damage.speaks:
        return Judged(HARMLESS if figures == before else OTHER)
    streams = {"standard error": ran.err, "standard output": "" if ran.out.lstrip()[:1] in ("{", "[") else ran.out}
    for name, text in streams.items():
        if marks := controls(text):
            return Judged(UNTIDY, f"{name} has {marks}")
    if damage.explained is not None:
        values = _at_places(ran.out, damage.explained)
        if values != damage.explained:
            return Judged(WRONG, f"says {values}, expected {damage.explained}")
    if damage.mended:
        before, figures = ({name: _DIGEST.sub("", text) for name, text in some.items()} for some in (before, figures))
    return Judged(OTHER, first_difference(before, figures)) if figures != before else Judged(HARMLESS)


def _at_places(out: str, wanted: Mapping[str, object]) -> dict[str, object]:
    """What JSON says at some places, each named by its keys with a dot between them."""
    values: dict[str, object] = {}
    for name in wanted:
        value = json.loads(out)
        for key in name.split("."):
            value = value[int(key) if isinstance(value, list) else key]
        values[name] = value
    return values


def _refused(ran: Ran, damage: Damage, undamaged: Ran | None) -> Judged:
    """A refusal, or what is wrong with it; a progress bar may stand before it."""
    # Where nothing but the output's last lines was lost, whole files may be there, and nobody could read the sentence.
    whole = undamaged.files if damage.setting and undamaged else {}
    left = [name for name, text in ran.files.items() if whole.get(name) != text]
    if left:
        return Judged(UNTIDY, f"refused, but left {', '.join(left)}")
    lines = [line for line in ran.err.splitlines() if line.strip() and _BAR not in line]
    if SETTINGS[damage.setting].is_silent and not lines:
        return Judged(REFUSED)
    if not any(line.startswith("simlab: ") for line in lines):
        return Judged(UNTIDY, f"exit code 2 without a sentence: {ran.err[-200:]!r}")
    if damage.speaks:
        return Judged(REFUSED, last_line(ran.err))
    if len(lines) > 1:
        return Judged(UNTIDY, f"{len(lines)} lines on standard error: {ran.err[:300]!r}")
    if marks := controls(ran.err + ran.out):
        return Judged(UNTIDY, f"the refusal has {marks}")
    if len(lines[0]) > _LONGEST:
        return Judged(UNTIDY, f"a sentence of {len(lines[0]):,} characters")
    if ran.out.strip():
        return Judged(UNTIDY, f"refused, but standard output says {ran.out[:100]!r}")
    return Judged(REFUSED, lines[0])


def controls(text: str) -> str:
    """Terminal escapes and direction marks in a text, in words; empty without any."""
    marks = {mark for mark in text if mark in _MARKS or (unicodedata.category(mark) == "Cc" and mark not in "\n\t\r")}
    return ", ".join(f"U+{ord(mark):04X}" for mark in sorted(marks))


def first_difference(undamaged: Mapping[str, str], damaged: Mapping[str, str]) -> str:
    """Where figures first differ, in words."""
    for name in sorted({*undamaged, *damaged}):
        if name not in damaged or name not in undamaged:
            return f"{name} is {'missing' if name not in damaged else 'new'}"
        before, after = undamaged[name], damaged[name]
        if before != after:
            at = max(_num_alike(before, after) - 40, 0)
            return f"{name}: {after[at : at + 100]!r} instead of {before[at : at + 100]!r}"
    return ""


def _num_alike(first: str, second: str) -> int:
    """How many characters are the same at the beginning of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (mark, other) in pairs if mark != other), min(len(first), len(second)))


def last_line(err: str) -> str:
    """The last line of standard error, cut where it is long."""
    lines = [line for line in err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing on standard error"
