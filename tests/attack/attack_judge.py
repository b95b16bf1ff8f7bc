"""Which class a case belongs to, from what its command left: exit code, output, files, time and memory."""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attack_cases import BEFORE, OUT, Command, Damage

REFUSED, HARMLESS, OTHER = "refused", "harmless", "other input"
WRONG, UNTIDY, TRACEBACK, MEMORY, HANG = "wrong figure", "untidy", "traceback", "memory", "hang"
GOOD = (REFUSED, HARMLESS, OTHER)
BAD = (WRONG, UNTIDY, TRACEBACK, MEMORY, HANG)
CLASSES = (*GOOD, *BAD)

MOST_BYTES = 2 << 30
MOST_SECONDS = 30.0
PERSON_CAN_FIX = 2

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)|^Fatal Python error", re.MULTILINE)
_PANIC = "panicked at"
"""What Rust prints before Python hears of it: no traceback where a sentence and exit code 2 come after it."""

_MARKS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left.

    Attributes:
        code: the exit code; below 0 the signal that ended it.
        out: standard output.
        err: standard error.
        seconds: that it took.
        peak_bytes: resident memory, at most.
        figures: what it says as values, by where it says it: standard output, each file.
        left: files in the folder of outputs, with their bytes' number or text that tells them apart.
    """

    code: int
    out: str
    err: str
    seconds: float = 0.0
    peak_bytes: int = 0
    figures: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A class, why, and what cases of one cause have in common."""

    outcome: str
    why: str = ""
    signature: str = ""


def judge(ran: Ran, damage: Damage, command: Command, undamaged: Mapping[str, str] | None) -> Judged:
    """The class of a case.

    Args:
        ran: what its command left.
        damage: what was done to the input.
        command: that met it.
        undamaged: figures of the same command with the undamaged input; None: there are none to compare with.
    """
    if ran.peak_bytes > MOST_BYTES:
        why = f"{ran.peak_bytes / (1 << 30):.1f} GB resident"
        return Judged(MEMORY, why, "memory")
    if ran.seconds > MOST_SECONDS:
        return Judged(HANG, f"{ran.seconds:.0f} s", "hang")
    if _TRACEBACK.search(ran.err) or (_PANIC in ran.err and ran.code != PERSON_CAN_FIX):
        return Judged(TRACEBACK, last_line(ran.err), signature_of(ran.err))
    if ran.code not in (*command.codes, PERSON_CAN_FIX):
        return Judged(TRACEBACK, f"exit code {ran.code}: {last_line(ran.err)}", f"exit code {ran.code}")
    if ran.code == PERSON_CAN_FIX:
        judged = _refusal(ran, damage.speaks, undamaged if command.setting else None)
    else:
        judged = _finished(ran, damage, command, undamaged)
    if judged.outcome in GOOD and damage.expected not in ("", judged.outcome):
        return Judged(WRONG, f"{judged.outcome}, expected {damage.expected}: {judged.why}", f"not {damage.expected}")
    return judged


def _finished(ran: Ran, damage: Damage, command: Command, undamaged: Mapping[str, str] | None) -> Judged:
    if damage.speaks:
        return Judged(HARMLESS if ran.figures == undamaged else OTHER)
    if not _is_json(ran.out) and (found := controls(ran.out)):
        return Judged(UNTIDY, f"standard output has {found}", "control characters on standard output")
    if found := controls(ran.err):
        return Judged(UNTIDY, f"standard error has {found}", "control characters on standard error")
    if damage.explained is not None:
        said = _at_places(ran.out, damage.explained)
        if said != damage.explained:
            return Judged(WRONG, f"says {said}, expected {damage.explained}", "not what follows from the change")
    if undamaged is None:
        return Judged(HARMLESS)
    figures = ran.figures
    if damage.mended:
        undamaged, figures = (without_digests(one) for one in (undamaged, figures))
    if dict(figures) == dict(undamaged):
        return Judged(HARMLESS)
    difference = first_difference(undamaged, figures)
    if damage.possible or damage.explained is not None:
        return Judged(OTHER, difference)
    return Judged(WRONG, difference, f"figures of simlab {command.words[0]}")


def _at_places(out: str, wanted: Mapping[str, object]) -> dict[str, object]:
    """What JSON says at some places, each named by its keys with a dot between them."""
    found: dict[str, object] = {}
    for name in wanted:
        value = json.loads(out)
        for key in name.split("."):
            value = value[int(key) if isinstance(value, list) else key]
        found[name] = value
    return found


def _refusal(ran: Ran, speaks: bool, whole: Mapping[str, str] | None = None) -> Judged:
    """A refusal, or what is wrong with it; a progress bar may stand before it.

    Args:
        ran: what the command left.
        speaks: whether the input writes to its streams too.
        whole: figures of files that may be there, as where nothing but the output's last lines was lost.
    """
    lines = [line for line in ran.err.splitlines() if line.strip() and _BAR not in line]
    if not any(line.startswith("simlab: ") for line in lines):
        return Judged(UNTIDY, f"exit code 2 without a sentence: {ran.err[-200:]!r}", "no sentence")
    left = {name: size for name, size in ran.left.items() if not whole or whole.get(name) != ran.figures.get(name)}
    if left:
        return Judged(UNTIDY, f"refused, but left {', '.join(sorted(left))}", "half written: " + _kinds(left))
    if speaks:
        return Judged(REFUSED, last_line(ran.err))
    if len(lines) > 1:
        return Judged(UNTIDY, f"{len(lines)} lines on standard error: {ran.err[:300]!r}", "several lines")
    if found := controls(ran.err + ran.out):
        return Judged(UNTIDY, f"the refusal has {found}", "control characters in a refusal")
    if len(lines[0]) > _LONGEST:
        return Judged(UNTIDY, f"a sentence of {len(lines[0]):,} characters", "a sentence without end")
    if ran.out.strip():
        return Judged(UNTIDY, f"refused, but standard output says {ran.out[:100]!r}", "output before a refusal")
    return Judged(REFUSED, lines[0])


_LONGEST = 4000
_BAR = "%|"


def _kinds(left: Mapping[str, str]) -> str:
    return ", ".join(sorted({Path(name).suffix or Path(name).name for name in left}))


def controls(text: str) -> str:
    """Terminal escapes and direction marks in a text, in words; empty without any."""
    found = {one for one in text if one in _MARKS or (unicodedata.category(one) == "Cc" and one not in "\n\t\r")}
    return ", ".join(f"U+{ord(one):04X}" for one in sorted(found))


def left_in(folder: Path) -> dict[str, str]:
    """What a command left in the folder of outputs, apart from what stood there and is unchanged."""
    found = {}
    for path in sorted((folder / OUT).rglob("*")):
        if path.is_file() and path.read_bytes()[: len(BEFORE) + 1] != BEFORE:
            found[path.relative_to(folder).as_posix()] = str(path.stat().st_size)
    return found


def canonical(text: str) -> str:
    """A text, as JSON in one form if it is JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, indent=1)
    except ValueError:
        return text


def without_digests(figures: Mapping[str, str]) -> dict[str, str]:
    """Figures without the sizes and digests of files."""
    return {name: _DIGEST.sub("", text) for name, text in figures.items()}


_DIGEST = re.compile(r'"(?:sha256|\w*bytes\w*)": [^,\n]*')


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def first_difference(undamaged: Mapping[str, str], damaged: Mapping[str, str]) -> str:
    """Where figures first differ, in words."""
    for name in sorted({*undamaged, *damaged}):
        if name not in damaged or name not in undamaged:
            return f"{name} is {'missing' if name not in damaged else 'new'}"
        before, after = undamaged[name].splitlines(), damaged[name].splitlines()
        for one, other in zip(before, after, strict=False):
            if one != other:
                return f"{name}: {_around(other, one)} instead of {_around(one, other)}"
        if len(before) != len(after):
            return f"{name}: {len(after)} lines instead of {len(before)}"
    return ""


def _around(shown: str, against: str) -> str:
    """The part of a line around the first character in which it is not the other line."""
    at = next(
        (i for i, (a, b) in enumerate(zip(shown, against, strict=False)) if a != b), min(len(shown), len(against))
    )
    return repr(shown[max(at - 60, 0) : at + 40].strip())


def last_line(err: str) -> str:
    """The last line of standard error, cut where it is long."""
    lines = [line for line in err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing on standard error"


_FRAME = re.compile(r'File "[^"]*?/(?:simlab|traces|policies|analysis|real_runner)/([^"]+\.py)", line \d+, in (\S+)')


def signature_of(err: str) -> str:
    """The kind of the error and the last place in the product, without numbers."""
    frames = _FRAME.findall(err)
    where = f" in {frames[-1][0]} {frames[-1][1]}" if frames else ""
    named = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b)", err, re.MULTILINE)
    return f"{named[-1] if named else re.sub(r'[0-9]+', 'N', last_line(err))[:80]}{where}"
