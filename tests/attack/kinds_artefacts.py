"""Cost files, fitted tables, counts of a 3-gram, choices, timings from elsewhere, and folders of confirmations."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind
from damage_bytes import damage_bytes, damage_folder
from damage_json import damage_json, damage_json_lines, damage_json_values
from damage_parquet import damage_parquet
from damage_signed import sign_json

_TRACE = ("--trace", "trace")
_ONE = ("--threads", "1")

_COST = (
    Command(("replay", *_TRACE, "--cost", "cost.json", "-p", "caddtree:budget=16", "--json", *_ONE)),
    Command(
        ("replay", *_TRACE, "--cost", "cost.json", "--what-if", "verify*0.5,tile=8", "-p", "chain", "--json", *_ONE)
    ),
    Command(("replay", *_TRACE, "--cost", "cost.json", "-p", "bastion:budget=16", "--json", *_ONE)),
    Command(("inspect", "cost.json", "--json")),
    Command(("inspect", "cost.json")),
    Command(("study", "curves", *_TRACE, "--cost", "cost.json", "--budget", "8", "--edges", "raw", "--json")),
    Command(
        ("report", *_TRACE, "--cost", "cost.json", "--out", "out/r.html", "-p", "chain"),
        ("out/r.html",),
        True,
        slow=True,
    ),
    Command(("optimize", *_TRACE, "--cost", "cost.json", "-p", "chain:length=2/3", "--no-halving", "--json", *_ONE)),
    Command(("export", "--format", "vllm", *_TRACE, "--cost", "cost.json", "-p", "chain", "--batch", "1,2")),
    Command(("study", "scoring", *_TRACE, "--cost", "cost.json", "-p", "chain", "--nodes", "8", "--json")),
)

_TABLES = (
    Command(("replay", *_TRACE, "-p", 'calibrated:budget=8,table="calibration.json"', "--json", *_ONE)),
    Command(("replay", *_TRACE, "-p", 'sequoia:budget=8,table="ranks.json"', "--json", *_ONE)),
    Command(("inspect", "calibration.json", "--json")),
    Command(("inspect", "ranks.json", "--json")),
    Command(
        (
            *("study", "curves", *_TRACE, "--cost", "cost.json", "--edges", "calibrated"),
            *("--calibration", "calibration.json", "--budget", "8", "--json"),
        )
    ),
)

_NGRAMS = (
    Command(("replay", *_TRACE, "-p", 'presto:budget=8,ngram="ngram.parquet"', "--json", *_ONE)),
    Command(("inspect", "ngram.parquet", "--json")),
    Command(("study", "scoring", *_TRACE, "-p", 'presto:budget=8,ngram="ngram.parquet"', "--nodes", "8", "--json")),
)

_OPTIMA = (
    Command(("inspect", "optimum.json", "--json")),
    Command(("inspect", "optimum.json")),
    Command(
        ("report", "results.parquet", *_TRACE, "--optimum", "optimum.json", "--out", "out/r.html"),
        ("out/r.html",),
        True,
        slow=True,
    ),
    Command(("confirm", "--from", "optimum.json", *_TRACE, "--out", "out/confirm"), ("out/confirm",), codes=(2,)),
)


def _timings(name: str, *more: str) -> Command:
    words = ("import", name, "--counts", "root-included", *_TRACE, "--draft-s", "0.01", "--out", "out/c.json")
    return Command((*words, "--json", *more), ("out/c.json",))


_IMPORTS = {
    "timings.csv": (_timings("timings.csv"), _timings("timings.csv", "--batch", "1")),
    "timings.json": (_timings("timings.json"),),
}

_CONFIRMATIONS = (
    Command(("report", "confirmation", "--out", "out/r.html"), ("out/r.html",), True, slow=True),
    Command(
        ("report", "confirmation", "--trace", "models/trace", "--out", "out/r.html"), ("out/r.html",), True, slow=True
    ),
    Command(
        (
            *("compare", "confirmation/results.parquet", "-p", "ddtree:budget=4", "--against", "chain", "--kind"),
            *("measured", "--json"),
        )
    ),
)


_CONFIRMED = (
    *("confirm", "--trace", "models/trace", "--target", "models/target", "--draft", "models/drafter"),
    *("-p", "ddtree:budget=4", "--out", "confirmation", "--threads", "1", "--json", "--resume"),
)
_LOGS = (Command(_CONFIRMED, ("confirmation",), codes=(0, 1), figured=False),)


def _json(*names: str) -> Callable[[Path, Random], Damage]:
    def damage(folder: Path, chance: Random) -> Damage:
        name = chance.choice(names)
        return damage_bytes(folder / name, chance) if chance.random() < 0.2 else damage_json(folder / name, chance)

    return damage


def _signed(*names: str) -> Callable[[Path, Random], Damage]:
    """Files that were changed and signed: what can stand there may be meant."""

    def damage(folder: Path, chance: Random) -> Damage:
        path = folder / chance.choice(names)
        data, note = damage_json_values(path.read_text(encoding="utf-8"), chance)
        path.write_bytes(data)
        signed = sign_json(path)
        return Damage(f"{path.name}: {note}{'; signed' if signed else ''}", possible=signed)

    return damage


def _ngram(folder: Path, chance: Random) -> Damage:
    path = folder / "ngram.parquet"
    return damage_bytes(path, chance) if chance.random() < 0.3 else damage_parquet(path, chance)


def _confirmation(folder: Path, chance: Random) -> Damage:
    place = folder / "confirmation"
    paths = sorted(path for path in place.rglob("*") if path.is_file())
    path = chance.choice(paths)
    if chance.random() < 0.3:
        return damage_folder(place, chance)
    if path.suffix == ".parquet":
        return damage_parquet(path, chance)
    return (damage_json_lines if path.suffix == ".jsonl" else damage_json)(path, chance)


_NUMBERS = (
    "0",
    "-1",
    "1.5",
    "NaN",
    "inf",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "",
    " ",
    '"7"',
    "0x10",
    "1_000",
    "=1+1",
    "٣",
)

_POSSIBLE = ("0", "1.5", '"7"', "1_000", "٣")


def _csv(folder: Path, chance: Random) -> Damage:
    """Timings from elsewhere: whatever can be read may be meant."""
    path = folder / "timings.csv"
    if chance.random() < 0.3:
        return damage_bytes(path, chance, possible=True)
    lines = path.read_text().splitlines()
    at = chance.randrange(1, len(lines))
    cells, column = lines[at].split(","), chance.randrange(3)
    what = chance.randrange(5)
    if what == 0:
        lines.insert(at, lines[at] + ",1")
    elif what == 1:
        lines[at] = ",".join(cells[:-1])
    elif what == 2:
        lines[1] = chance.choice((lines[1].upper(), "nodes,nodes,seconds", "", "\x1b[31mnodes,context,seconds"))
    else:
        cells[column] = chance.choice(_NUMBERS)
        lines[at] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    return Damage(f"line {at + 1} is {lines[at]:.60}", what < 3 or cells[column] in _POSSIBLE)


def _json_timings(folder: Path, chance: Random) -> Damage:
    return damage_json(folder / "timings.json", chance, possible=True)


_OF_COST = ("trace", "cost.json")
_OF_TABLES = ("trace", "cost.json", "calibration.json", "ranks.json")
_OF_OPTIMA = ("trace", "results.parquet", "optimum.json")
_OF_CONFIRMATIONS = ("models", "confirmation")


def _log(folder: Path, chance: Random) -> Damage:
    """The log of a run that is to go on: what is lost of it is run again."""
    path = folder / "confirmation/log.jsonl"
    if chance.random() < 0.3:
        return damage_bytes(path, chance, possible=True)
    return damage_json_lines(path, chance, possible=True)


KINDS = (
    Kind("cost-files", _OF_COST, _json("cost.json"), _COST, share=6),
    Kind("signed-cost-files", _OF_COST, _signed("cost.json"), _COST, share=8),
    Kind("fitted-tables", _OF_TABLES, _json("calibration.json", "ranks.json"), _TABLES, share=4),
    Kind("signed-tables", _OF_TABLES, _signed("calibration.json", "ranks.json"), _TABLES, share=5),
    Kind("ngrams", ("trace", "ngram.parquet"), _ngram, _NGRAMS, share=4),
    Kind("optima", _OF_OPTIMA, _json("optimum.json"), _OPTIMA, share=4),
    Kind("signed-optima", _OF_OPTIMA, _signed("optimum.json"), _OPTIMA, share=5),
    Kind("confirmations", _OF_CONFIRMATIONS, _confirmation, _CONFIRMATIONS, share=5),
    Kind("signed-summaries", _OF_CONFIRMATIONS, _signed("confirmation/confirm.json"), _CONFIRMATIONS, share=4),
    Kind("logs", _OF_CONFIRMATIONS, _log, _LOGS, share=1),
    Kind("timings-csv", ("trace", "timings.csv"), _csv, _IMPORTS["timings.csv"], share=3),
    Kind("timings-json", ("trace", "timings.json"), _json_timings, _IMPORTS["timings.json"], share=3),
)
