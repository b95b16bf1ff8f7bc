"""Kinds of input that are files of simlab's: which are damaged, what else is there, and which commands read them."""

import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import polars as pl
from attack_cases import ADDRESS, GOOD, HARMLESS, REFUSED, VOUCHED, Damage, Kind
from attack_inputs import CONFIRMED, REPLAYED, TRAINED
from attack_run import UNPRIVILEGED
from attack_server import FAULT, FAULTS
from damage_files import ITSELF, MANIFEST, damage_file, damage_folder, mend, put_special, sign
from damage_parquet import changed_rows, metadata_of, with_values
from damage_values import TEXTS
from damaged_checkpoints import DAMAGES

from simlab.cli.main import main
from simlab.errors import SimlabError
from simlab.traces.format.files import SEQUENCES, TOKEN_TEXTS
from simlab.traces.inspect import check_trace

_PRICED = "--trace trace --cost cost.json"
_REPORT = "--out out/old.html"
_RECORD = "record --target models/target --draft models/drafter --max-new-tokens 4 --limit 2 --min-width 8 "
_RECORD += "--exact-budget 8 --out out/trace"

OF_TRACES = (
    "replay --trace trace -p ddtree:budget=8 --json",
    f"replay {_PRICED} -p ddtree:budget=8 -p caddtree:budget=16 --json",
    *["inspect trace --json"] * 2,
    "replay --trace trace -p chain --out out/r.parquet",
    "replay --trace trace -p chain --rounds out/n.parquet",
    f"replay {_PRICED} -p ddtree:budget=4 --batch 2 --json",
    "compare trace trace -p ddtree:budget=8 --json",
    f"report {_PRICED} -p chain --texts 1 {_REPORT}",
    "export --format conformance --trace trace -p chain --limit 2",
    "export --format vllm --trace trace -p chain --out out/v.json",
    f"study scoring {_PRICED} -p ddtree:budget=8 --nodes 16 --json",
    f"study curves {_PRICED} --budget 8 --edges raw --json",
    f"optimize {_PRICED} -p ddtree:budget=4/8 --no-halving --json",
    "train calibration --trace trace --out out/c.json --json",
    "train ranks --trace trace --out out/c.json --json",
    "train ngram --trace trace --out out/n.parquet",
)

_SENT = ("export --push out/sent --trace trace", "export --push out/sent --trace trace --dry-run")
"""They pass on whatever is under digests that agree, so they are not asked of what was mended."""

_OF_RESULTS = (
    "compare results.parquet -p ddtree:budget=8 --against chain --json",
    "compare results.parquet half.parquet -p ddtree:budget=8 --json",
    "compare results.parquet results.parquet --measure acceptance_length --by dataset --json",
    "inspect results.parquet --json",
    "inspect results.parquet",
    f"report results.parquet --trace trace --texts 1 {_REPORT}",
    f"report results.parquet half.parquet --trace trace {_REPORT}",
    "export --format markdown --results results.parquet --out out/old.md",
    "export --format latex --results results.parquet --columns dataset",
    "merge results.parquet half.parquet --out out/m.parquet --json",
    f"{REPLAYED} --resume",
)

_OF_COST = (
    f"replay {_PRICED} -p caddtree:budget=16 --json",
    f"replay {_PRICED} --what-if verify*0.5,tile=8 -p chain --json",
    f"replay {_PRICED} -p bastion:budget=16 --json",
    "inspect cost.json --json",
    "inspect cost.json",
    f"study curves {_PRICED} --budget 8 --edges raw --json",
    f"report {_PRICED} {_REPORT} -p chain",
    f"optimize {_PRICED} -p chain:length=2/3 --no-halving --json",
    f"export --format vllm {_PRICED} -p chain --batch 1,2",
    f"study scoring {_PRICED} -p chain --nodes 8 --json",
)

_OF_TABLES = (
    "replay --trace trace -p 'calibrated:budget=8,table=\"calibration.json\"' --json",
    "replay --trace trace -p 'sequoia:budget=8,table=\"ranks.json\"' --json",
    "inspect calibration.json --json",
    "inspect ranks.json --json",
    f"study curves {_PRICED} --edges calibrated --calibration calibration.json --budget 8 --json",
)

_OF_NGRAMS = (
    "replay --trace trace -p 'presto:budget=8,ngram=\"ngram.parquet\"' --json",
    "inspect ngram.parquet --json",
    "study scoring --trace trace -p 'presto:budget=8,ngram=\"ngram.parquet\"' --nodes 8 --json",
)

_OF_OPTIMA = (
    "inspect optimum.json --json",
    "inspect optimum.json",
    f"report results.parquet --trace trace --optimum optimum.json {_REPORT}",
    "confirm --from optimum.json --trace trace --out out/confirm",
)

_OF_CONFIRMATIONS = (
    f"report confirmation {_REPORT}",
    f"report confirmation --trace models/trace {_REPORT}",
    "compare confirmation/results.parquet -p ddtree:budget=4 --against chain --kind measured --json",
)

_RESUMED = f"replay {_PRICED} -p ddtree:budget=4 --json --out pair/r.parquet --rounds pair/n.parquet --resume"

_OF_PARTS = (
    "merge part0.parquet part.parquet --out out/m.parquet --json",
    "merge sums0.parquet sums.parquet --out out/m.parquet --json",
    f"optimize {_PRICED} -p ddtree:budget=4/8 --no-halving --json --sums all-sums.parquet",
)

_CHANNELS = {
    "transitions": "treeflash:budget=6,previous=3,top_k=3,channel=transitions",
    "pool": "tree:budget=6,edges=pool,channel=pool,pool_beam=2",
    "branches": "d2sd:budget=6,branches=2,channel=branches",
    "features": 'router:routes="ddtree:budget=8|chain",by=network,channel=features,cost=cost.json',
}
"""A policy that reads each kind of channel."""

_OF_CHANNELS = (
    *(f"replay --trace channels --draft-set synthetic --json -p '{policy}'" for policy in _CHANNELS.values()),
    "replay --trace channels -p ddtree:budget=4 --draft-set second --json",
    *["inspect channels --json"] * 2,
    f"replay --trace channels --draft-set synthetic -p {_CHANNELS['pool']} --out out/r.parquet",
    "export --format conformance --trace channels --draft-set second -p chain",
)

_OF_LARGE = (
    "replay --trace large -p ddtree:budget=8 --json",
    "replay --trace large -p chain --json",
    "inspect large --json",
)

_ADDED = "record --trace models/trace --target models/target --draft models/drafter --add-channel"
_DRAFTED = "--prompts models/prompts.jsonl --max-new-tokens 4 --limit 2 --min-width 8 --exact-budget 8 --out out/trace"
_HEADS = {
    "treeflash": f"{_ADDED} treeflash=heads/treeflash,previous=2,top_k=3",
    "taps": f"{_ADDED} taps=heads/taps,beam=3",
    "router": "record --trace models/trace --target models/target --add-channel router=heads/router",
    "eagle3": f"record --target models/target --draft heads/eagle3 {_DRAFTED}",
    "adapter": f"record --target models/target --draft heads/adapter {_DRAFTED}",
}

DamageOf = Callable[[Path, Random], Damage]


def damage_any(
    folder: Path, pattern: str, chance: Random, *, is_read: bool, bytes_below: float = 0.2
) -> tuple[Path, Damage]:
    """Damage one of the files that a pattern names: its bytes, what it says, whether it is there, what it is.

    Where every command of the kind reads it, it must be refused if nobody may read it, or if it is no file.
    """
    path, what = chance.choice(sorted(folder.glob(pattern))), chance.random()
    refused = (REFUSED,) if is_read else VOUCHED
    if path.is_dir():
        what = 0.1
    if what < 0.03:
        path.chmod(0)
        return path, Damage(f"{path.name}: nobody may read it", refused, setting=UNPRIVILEGED)
    if what < 0.12:
        put = put_special(path, chance)
        return path, Damage(f"{path.name} is {put}", (HARMLESS,) if put == ITSELF else refused)
    return path, Damage(damage_folder(path.parent, chance) if what < bytes_below else damage_file(path, chance))


def vouched(*patterns: str, signs: bool = True, is_read: bool = False) -> DamageOf:
    """Damage to files that a digest covers, half of which are signed anew: what can stand there may then be meant."""

    def damage(folder: Path, chance: Random) -> Damage:
        # Whatever else a file says that is not signed anew, its bytes are seen to be others first.
        bytes_below = 0.2 if signs else 0.8
        path, done = damage_any(folder, chance.choice(patterns), chance, is_read=is_read, bytes_below=bytes_below)
        if not signs or done.setting or path.is_symlink() or not path.is_file() or chance.random() < 0.5:
            return done
        return Damage(f"{done.note}; signed", GOOD) if sign(path) else done

    return damage


def own(*patterns: str, is_read: bool = False) -> DamageOf:
    """Damage to files of which every content may be meant."""

    def damage(folder: Path, chance: Random) -> Damage:
        _, done = damage_any(folder, chance.choice(patterns), chance, is_read=is_read)
        return Damage(done.note, done.allowed if len(done.allowed) == 1 else GOOD, setting=done.setting)

    return damage


def checkpoint(folder_name: str) -> DamageOf:
    """Damage to weights and configurations, which are a person's own."""

    def damage(folder: Path, chance: Random) -> Damage:
        try:
            return Damage(DAMAGES[chance.choice(list(DAMAGES))](folder / folder_name, chance), GOOD)
        except (OSError, LookupError):  # it is for files that only drafters have
            return Damage(damage_folder(folder / folder_name, chance), GOOD)

    return damage


def mended(name: str) -> DamageOf:
    """Changed tables under a manifest that agrees with their bytes; the ids of their content are left alone."""

    def damage(folder: Path, chance: Random) -> Damage:
        drafts = sorted((folder / name).glob("draft-*.parquet"))
        tables = sorted((folder / name).glob("*.parquet"))
        path = chance.choice(chance.choice((drafts, tables)))
        alike = [one for one in tables if one != path and one.name.split("-")[0] == path.name.split("-")[0]]
        if alike and chance.random() < 0.1:
            other = chance.choice(alike)
            data, others = path.read_bytes(), other.read_bytes()
            path.write_bytes(others)
            other.write_bytes(data)
            note = f"{path.name} and {other.name} have changed places"
        elif path in drafts and chance.random() < 0.2:
            rows = pl.read_parquet(path)
            table, note = _unsorted(rows, chance)
            table.write_parquet(path, metadata=metadata_of(path))
        else:
            note = damage_file(path, chance)
        mend(folder / name)
        is_another = path.name == TOKEN_TEXTS or _is_another_trace(folder / name, path.name)
        note = f"{note}; sizes and digests of files mended"
        return Damage(note, GOOD if is_another else VOUCHED, mended=True)

    return damage


def _unsorted(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Two candidates beside each other, or their numbers, in the other order."""
    name, row = chance.choice(("log_probs", "ids", "counts")), chance.randrange(rows.height)
    values = rows[name].to_list()
    at = chance.randrange(len(values[row]) - 1)
    values[row][at : at + 2] = values[row][at : at + 2][::-1]
    return with_values(rows, name, values), f"{name} {at} and {at + 1} of row {row} are exchanged"


def _is_another_trace(trace: Path, changed: str) -> bool:
    """Whether a change is one that `simlab inspect` alone tells: by ids of content, or by what is said of prompts.

    docs/reference/trace_format.md lists what is checked on every read, and what is not.
    """
    try:
        check_trace(trace)
    except SimlabError as error:
        return changed == SEQUENCES or " of its content is " in str(error)
    except pl.exceptions.PanicException:
        return False
    return False


_BOMB = 100_000_000
"""Values in the list of a bomb: they take a few kilobytes on disk."""


def _bomb(folder: Path, chance: Random) -> Damage:
    """A few kilobytes that are gigabytes when they are read, under a manifest that agrees with them."""
    name, column = chance.choice((("draft-*0", "ids"), ("draft-*0", "log_probs"), ("sequences", "text_token_ids")))
    (path,) = (folder / "trace").glob(f"{name}.parquet")
    rows = pl.read_parquet(path)
    dtype = rows.schema[column]
    assert isinstance(dtype, pl.List)
    zeros = pl.repeat(0, _BOMB, dtype=dtype.inner, eager=True).implode()
    first = rows.head(1).with_columns(zeros.alias(column))
    pl.concat([first, rows.slice(1)]).write_parquet(path, statistics=False)
    mend(folder / "trace")
    return Damage(f"{path.name} with a list of {_BOMB:,} {column}; sizes and digests of files mended", mended=True)


def _served(folder: Path, chance: Random) -> Damage:
    """Changed files behind an address, or a server that fails."""
    if chance.random() < 0.6:
        return Damage(damage_folder(folder / "trace", chance))
    fault, befalls = chance.choice(FAULTS), chance.choice(("", "manifest", "sequences", "tokens-0000", "draft", "0001"))
    (folder / FAULT).write_text(f"{fault}\n{befalls}")
    return Damage(f"the server's fault: {fault}, of files with {befalls!r} in their names")


_NO_TEXTS = {"kind": ("guessed", ""), "settings": ("{", "[]", "null", "[" * 100_000)}
"""Texts that no replay writes into a column, whoever signs them."""


def _impossible(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A value that no replay gives: a count below 0 or beyond all, seconds that are none."""
    counts = ("rounds", "drafted", "verified", "accepted", "committed", "clipped")
    seconds = ("draft_s", "verify_s", "commit_s", "select_s")
    name, row = chance.choice((*counts, *seconds, "turn", "sequence", "context_length", *_NO_TEXTS)), 0
    odd: Sequence[object] = _NO_TEXTS.get(name, (-1, -5, 2**62 if name in ("rounds", "drafted") else -7))
    odd = (float("nan"), float("inf"), -1.0) if name in seconds else odd
    values, row = rows[name].to_list(), chance.randrange(rows.height)
    values[row] = chance.choice(odd)
    return with_values(rows, name, values), f"{name} of row {row} is {values[row]!r:.40}"


def _strange_text(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A text that a reader shows, or knows rows by, is another one."""
    name = chance.choice([column for column in rows.columns if rows.schema[column] == pl.String])
    new = chance.choice((*TEXTS, "measured", "hindsight", "ddtree:budget=9", "<script>alert(1)</script>", "math-0"))
    values, row = rows[name].to_list(), chance.randrange(rows.height)
    values[row] = new
    return with_values(rows, name, values), f"{name} of row {row} is {new!r}"


def _again(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Rows of the same texts a second time, with other figures half of the time."""
    some = rows.sample(chance.randrange(1, rows.height), seed=chance.randrange(1000))
    again = chance.choice((some, some.with_columns(pl.col("committed") + 1)))
    return pl.concat([rows, again]), f"{some.height} rows a second time"


def _results(folder: Path, chance: Random) -> Damage:
    """Results that were changed, and signed half of the time."""
    path = folder / "results.parquet"
    if chance.random() < 0.3:
        return vouched("results.parquet")(folder, chance)
    rows, metadata = pl.read_parquet(path), metadata_of(path)
    change = chance.choice((_impossible, _impossible, _again, _strange_text, changed_rows))
    table, note = change(rows, chance)
    if chance.random() < 0.1:
        table, note = pl.concat([rows, pl.read_parquet(folder / "half.parquet")]), "joined with rows of two prompts"
    table.write_parquet(path, metadata=metadata)
    if chance.random() < 0.5 or not sign(path):
        return Damage(note)
    return Damage(f"{note}; signed", VOUCHED if change in (_impossible, _again) else GOOD)


def _timings(folder: Path, chance: Random) -> Damage:
    """Timings from elsewhere: whatever can be read may be meant, but no number that is not finite or below 0."""
    done = own("timings.csv", is_read=True)(folder, chance)
    number = re.fullmatch(r"timings\.csv: line \d+: (.*) instead of [\d.]+", done.note)
    try:
        is_sound = number is None or 0 <= float(number[1]) < float("inf")
    except ValueError:
        is_sound = '"' in done.note
    return done if is_sound else Damage(done.note)


def _decoded(folder: Path, chance: Random) -> Damage:
    """Rows that were kept decoded: no figure is made of what somebody else wrote there."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
        main(_OF_LARGE[0].split())
    kept = folder / "large/.decoded"
    rows, stamps = sorted(kept.glob("*.rows")), sorted(kept.glob("*.stamp"))
    path, what = chance.choice(rows), chance.randrange(4)
    if what == 0:
        note = damage_folder(kept, chance)
    elif what == 1:
        path, words = chance.choice(stamps), chance.choice(stamps).read_text(errors="replace").split()
        at = chance.randrange(len(words))
        words[at] = chance.choice(("", "0" * 64, words[at - 1], words[at][::-1], "9" * 5000))
        path.write_text(" ".join(words))
        note = f"{path.name}: word {at} is {words[at]:.20}"
    else:
        data, at = bytearray(path.read_bytes()), chance.randrange(path.stat().st_size // 4) * 4
        size = len(data)
        data[at : at + 400] = chance.choice((bytes(400), data[:400], chance.randbytes(400)))
        path.write_bytes(bytes(data[:size]))
        note = f"{path.name}: 400 bytes at {at} are others"
    return Damage(note, mended=True)


def _dumps(folder: Path, chance: Random) -> Damage:
    """Dumped states and the texts along which they were; what they say is the engine's own."""
    if chance.random() < 0.5:
        return own("dumps/served.jsonl", "dumps/states/*")(folder, chance)
    return Damage(DAMAGES[chance.choice(("change header", "change tensor"))](folder / "dumps/states", chance), GOOD)


def _prompts(folder: Path, chance: Random) -> Damage:
    """Prompts that are changed, or whose text is a strange one."""
    if chance.random() < 0.5:
        return own("models/more.jsonl")(folder, chance)
    path, text = folder / "models/more.jsonl", chance.choice((*TEXTS, "a" * 200_000, "<|im_end|>", "{{ 1 }}"))
    turns = chance.choice(([text], [text, text], [], text, [{"role": "user"}], [None]))
    lines = [json.dumps({"id": "p0", "dataset": text[:100], "turns": turns}), *path.read_text().splitlines()[1:]]
    path.write_text("\n".join(lines) + "\n")
    return Damage(f"line 1 is {lines[0]:.80}", GOOD)


_TRACE, _MODELS = ("trace", "cost.json"), ("models",)
_PARTS = ("part0.parquet", "part.parquet", "sums0.parquet", "sums.parquet", "all-sums.parquet")
_RESULTS = ("results.parquet", "half.parquet", *_TRACE)
_CONFIRMATION = ("models", "confirmation")
_NGRAM = "train ngram --like trace --out out/n.parquet --text"
_IMPORT = "--counts root-included --trace trace --draft-s 0.01 --out out/c.json --json"
_DUMPED = (
    "record --target models/target --draft models/drafter --completions dumps/served.jsonl --hidden-states dumps/states"
    " --hidden-layers 1,2,3,4 --out out/trace --min-width 8 --exact-budget 8"
)
_INSPECTED = ("inspect models/drafter --json", "inspect models/drafter/model.safetensors --json")

KINDS = (
    Kind("traces", _TRACE, vouched(*["trace/*"] * 9, "trace", signs=False), (*OF_TRACES, *_SENT), 14),
    Kind("manifests", _TRACE, vouched(f"trace/{MANIFEST}"), OF_TRACES, 20),
    Kind("mended-tables", _TRACE, mended("trace"), OF_TRACES, 20),
    Kind("bombs", _TRACE, _bomb, OF_TRACES, 1),
    Kind(
        "served-traces",
        ("trace",),
        _served,
        (f"replay --trace {ADDRESS}/trace -p ddtree:budget=8 --json", f"inspect {ADDRESS}/trace --json"),
        2,
    ),
    Kind("channels", ("channels", "cost.json"), vouched("channels/*", signs=False),
         (*_OF_CHANNELS, "export --push out/sent --trace channels"), 4),
    Kind("channel-manifests", ("channels", "cost.json"), vouched(f"channels/{MANIFEST}"), _OF_CHANNELS),
    Kind("mended-channels", ("channels", "cost.json"), mended("channels"), _OF_CHANNELS, 10),
    Kind("decoded-rows", ("large",), _decoded, _OF_LARGE),
    Kind("results", _RESULTS, _results, _OF_RESULTS, 22),
    Kind("rounds", (*_TRACE, "pair"), vouched("pair/*"), (_RESUMED, f"{_RESUMED} -p chain:length=2")),
    Kind("parts", (*_TRACE, *_PARTS), vouched(*_PARTS), _OF_PARTS, 8),
    Kind("cost-files", _TRACE, vouched("cost.json", is_read=True), _OF_COST, 14),
    Kind("fitted-tables", (*_TRACE, "calibration.json", "ranks.json"), vouched("[cr]a*.json"), _OF_TABLES, 9),
    Kind("ngrams", ("trace", "ngram.parquet"), vouched("ngram.parquet", is_read=True), _OF_NGRAMS),
    Kind("optima", ("trace", "results.parquet", "optimum.json"), vouched("optimum.json", is_read=True), _OF_OPTIMA, 9),
    Kind("confirmations", _CONFIRMATION, vouched("confirmation/*"), _OF_CONFIRMATIONS, 9),
    Kind("logs", _CONFIRMATION, own("confirmation/log.jsonl"), (f"{CONFIRMED} --resume",), 1),
    Kind("timings-csv", ("trace", "timings.csv"), _timings,
         (f"import timings.csv {_IMPORT}", f"import timings.csv {_IMPORT} --batch 1"), 3),
    Kind("timings-json", ("trace", "timings.json"), own("timings.json", is_read=True),
         (f"import timings.json {_IMPORT}",), 3),
    Kind("candidates", ("candidates.jsonl",), own("candidates.jsonl", is_read=True),
         ("import candidates.jsonl --json", "import candidates.jsonl --json --out out/trace"), 2),
    Kind("prompts", _MODELS, _prompts, (f"{_RECORD} --prompts models/more.jsonl",), 2),
    Kind("benchmarks", ("gsm8k.jsonl",), own("gsm8k.jsonl", is_read=True),
         ("prompts gsm8k --from gsm8k.jsonl --out out/p.jsonl",), 1),
    Kind("text-tables", ("trace", "texts.parquet"), own("texts.parquet", is_read=True), (f"{_NGRAM} texts.parquet",)),
    Kind("text-lines", ("trace", "texts.jsonl"), own("texts.jsonl", is_read=True), (f"{_NGRAM} texts.jsonl",), 3),
    Kind("checkpoints", _MODELS, checkpoint("models/drafter"),
         (*_INSPECTED, f"{_RECORD} --prompts models/prompts.jsonl"), 5),
    Kind("configurations", ("models", *_TRACE), own("models/target/config.json", "models/drafter/config.json"),
         (f"{_RECORD} --prompts models/more.jsonl --dry-run configs", _INSPECTED[0],
          f"replay {_PRICED} --json -p 'bastion:budget=16,cost_model=roofline,target_config=\"models/target\"'"), 5),
    Kind("training", ("models", "training.parquet", "training"), own("training/*"), (f"{TRAINED} --resume",), 1),
    Kind("dumped-states", ("models", "dumps"), _dumps, (_DUMPED,), 3),
    *(Kind(f"{name}-checkpoints", ("models", "heads"), checkpoint(f"heads/{name}"),
           (f"inspect heads/{name} --json", command), 2) for name, command in _HEADS.items()),
)  # fmt: skip
