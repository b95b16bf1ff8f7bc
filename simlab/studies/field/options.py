"""What a field is of: its models, its size, and about how long that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.errors import TraceError, UsageError
from simlab.limits import shown
from simlab.options import option
from simlab.real_runner.model_options import (
    DRAFTER,
    TARGET,
    device_option,
    dtype_option,
    execution_option,
    named_checkpoint,
)
from simlab.studies.field.rows import Row
from simlab.studies.field.systems import LARGEST
from simlab.traces.format.documents import json_fields
from simlab.untrusted.json_text import file_bytes


def _named_prices(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise ValueError(f"expected NAME=FILE, such as a100=runs/a100.json; got {shown(text)}")
    return name, path


@dataclass(frozen=True)
class FieldOptions:
    """What a field is of, and how its models run."""

    DETAILS: ClassVar = """\
Records the prompts with every drafter, head and scorer, times these here, turns every system to 8, 16,
32 and 64 drafted tokens a round, chooses its fastest setting by each of the prices on dev prompts, replays all of them
on other prompts, and runs the fastest on the real models.
Says beforehand about how long it takes, and goes on where it was interrupted. With --quick it takes about ten minutes
on two cores, and its figures are worth no more than that.
All figures are in OUT/field.json. Exit code 1: a text is not the target's, or rounds are not those of their replay.

  simlab study field --quick --out runs/quick
  simlab study field --out runs/field
  simlab study field --models mine.json --dev dev.jsonl --prompts eval.jsonl --device cuda --out runs/mine

--models names other models, as JSON:
  {"target": "ORG/TARGET", "drafters": {"dflash": "ORG/DRAFTER"},
   "channels": {"eagle3": {"checkpoint": "ORG/HEAD", "settings": {"steps": 7}}}}"""
    RESUME: ClassVar = "finished steps are in {out}: the same command goes on"

    out: str | Path = option(
        Path("runs/field"), "where everything is kept", "DIR", read=Path, writes="All figures, in field.json"
    )
    _: KW_ONLY
    quick: bool = option(False, "few prompts and brief measurements, in one dtype")
    models: str | Path | None = option(None, "target, drafters and channels (default: packaged)", "FILE", read=Path)
    add_draft: Sequence[tuple[str, str]] | Mapping[str, str] = option(
        (),
        "another draft set beside these, such as self=ADAPTER; may be repeated",
        "NAME=CHECKPOINT",
        read=named_checkpoint,
        repeats=True,
    )
    dev: str | Path | None = option(None, "prompts to choose on (default: 40 that are packaged)", "FILE", read=Path)
    prompts: str | Path | None = option(
        None, "prompts to report on (default: 128 that are packaged)", "FILE", read=Path
    )
    confirm_minutes: float | None = option(
        None,
        "minutes of all runs together (default 240; --quick: 3); of a finished field, more of them; 0: none",
        "N",
    )
    prices: Sequence[tuple[str, str]] | Mapping[str, str | Path] = option(
        (),
        "a latency profile by which settings are chosen too; may be repeated (default: an H200's for the packaged "
        "models)",
        "NAME=FILE",
        read=_named_prices,
        repeats=True,
    )
    dtype: str | None = dtype_option(
        "bfloat16 where the hardware multiplies it, and a CPU's rounds are then timed in float32 too; else float32",
        None,
    )
    device: str = device_option()
    execution: str | None = execution_option()

    def __post_init__(self) -> None:
        if self.confirm_minutes is not None and not self.confirm_minutes >= 0:
            raise ValueError(f"--confirm-minutes must not be negative; got {self.confirm_minutes:g}")


def _channel(checkpoint: str, drafter: str | None, *units: int, **settings: int) -> Row:
    return {"checkpoint": checkpoint, "drafter": drafter, "settings": settings, "units": list(units)}


PACKAGED: Row = {
    "target": TARGET,
    "drafters": {"dflash": DRAFTER, "jetspec": "jetspec-smollm2-135m", "uno": "uno-smollm2-135m"},
    "channels": {
        "eagle3": _channel("eagle3-smollm2-135m", None, 1, 2, 3, 5, 7, steps=7),
        "treeflash": _channel("treeflash-smollm2-135m", "dflash", 6, 16, previous=16, top_k=16),
        "taps": _channel("taps-smollm2-135m", "dflash", beam=48),
        "d2sd": _channel("jetspec-smollm2-135m", "dflash", 1, 2, 4, top_k=8),
        "router": _channel("router-smollm2-135m", None),
        "extension": _channel("jetspec-smollm2-135m", "jetspec", 1, block=15, whole=1),
        "jetspec": _channel("jetspec-smollm2-135m", "jetspec", beam=10, top_k=7),
    },
}
"""What comes with simlab: a target; the drafter of each draft set, the first of which is recorded with the target; and
channels, with the draft set that each stands on (None: it reads the target alone, and its policies run no drafter), how
far it is recorded, and the units at which it is timed (none: that of its settings)."""


@dataclass(frozen=True, slots=True)
class FieldSize:
    """How much is measured.

    Attributes:
        dev_prompts: of the prompts that settings are chosen on, the first so many.
        prompts: the same of those that are reported.
        max_new_tokens: of an answer.
        node_counts: that rounds are timed at.
        contexts: that rounds are timed at, tokens before the root.
        repeats: samples of each.
        catch_up: tokens that a drafter of a router may have missed, of which late readings are timed.
        confirm_minutes: of all runs of the real models together.
        repeats_after: samples of each that are taken once more after these runs; 0: none.
    """

    dev_prompts: int
    prompts: int
    max_new_tokens: int
    node_counts: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    catch_up: tuple[int, ...]
    confirm_minutes: float
    repeats_after: int

    def counts_of(self, drafter: str) -> tuple[int, ...]:
        """Those of its node counts that rounds of a draft set are timed at."""
        return tuple(count for count in self.node_counts if count <= LARGEST.get(drafter, count))


NODE_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 264)
"""Every size up to a block: rules that stop early draft one to five tokens, and what lies between is not known. The
largest tree that is published has 261."""

FULL = FieldSize(40, 128, 96, NODE_COUNTS, (64, 192, 384, 640), 7, (1, 16, 64, 256), 240.0, 3)
QUICK = FieldSize(4, 4, 32, (1, 2, 4, 8, 16, 32, 64), (64, 640), 2, (1, 64), 3.0, 0)


def read_models(path: Path) -> Row:
    """The models that a JSON file names, in the form of `PACKAGED`; a channel needs no more than its checkpoint."""
    try:
        given = json_fields(file_bytes(path), str(path))
        models: Row = {"target": given.text("target"), "drafters": given.texts("drafters"), "channels": {}}
        if not models["drafters"]:
            raise ValueError("the field needs a drafter; got none")
        for name, inner in given.inners("channels").items():
            settings = inner.inner("settings") if "settings" in inner.values else None
            whole = {} if settings is None else {key: settings.integer(key) for key in settings.values}
            units = inner.integers("units") if "units" in inner.values else ()
            drafter = inner.text("drafter") if inner.values.get("drafter") is not None else None
            if drafter not in (None, *models["drafters"]):
                known = ", ".join(models["drafters"])
                raise ValueError(f"the channel {name} stands on the draft set {drafter}; there are {known}")
            models["channels"][name] = _channel(inner.text("checkpoint"), drafter, *units, **whole)
    except (OSError, ValueError, TraceError) as error:
        raise UsageError(f"{path} does not name the models of a field: {error}") from error
    return models


def channels_of(models: Row, drafter: str) -> dict[str, Row]:
    """The channels that are timed beside a drafter: those on its draft set; at the first also those on none."""
    beside = (drafter, None) if drafter == next(iter(models["drafters"])) else (drafter,)
    return {name: model for name, model in models["channels"].items() if model["drafter"] in beside}


_TOKENS_A_TEXT = 0.9
"""Of the tokens that an answer may have, what answers have on the average: some stop earlier."""

_ADDED = {"eagle3": 0.7, "treeflash": 1.0, "taps": 0.7, "d2sd": 1.2, "jetspec": 3.5}
_ADDED_ELSE, _TIMED_PASS = 0.7, 10.0
"""What a position takes in tokens of autoregressive decoding when a channel or a draft set is added, by its name;
recording target and first drafter takes 1. And a sample of a round at one context and number of nodes."""

AFTER = "-after"
"""How names of latency profiles end that are made after the runs."""

_CHOOSING_S, _LOADING_S = 75.0, 6.0
"""Of the replays and the search on the dev prompts, on two cores; and of models, once a step."""


def expected_seconds(size: FieldSize, models: Row, token_s: float, texts: Mapping[str, int]) -> dict[str, float]:
    """About how long each step takes, by its name, the runs of the real models apart.

    Args:
        size: of the field.
        models: that run.
        token_s: of a token of autoregressive decoding on this machine.
        texts: of the prompts of ``dev`` and ``eval``: a prompt of two turns is two.
    """
    seconds: dict[str, float] = {}
    first, *others = models["drafters"]
    added = {f"draft {name}": _ADDED_ELSE for name in others}
    added |= {f"channel {name}": _ADDED.get(name, _ADDED_ELSE) for name in models["channels"]}
    for side, num in texts.items():
        positions = num * size.max_new_tokens * _TOKENS_A_TEXT * token_s
        seconds[f"record {side}"] = _LOADING_S + positions
        seconds |= {f"add {name} {side}": _LOADING_S + positions * share for name, share in added.items()}
    for drafter in models["drafters"]:
        units = sum(max(len(channel["units"]), 1) for channel in channels_of(models, drafter).values())
        late = len(size.catch_up) if drafter == first else 0
        cells = (len(size.counts_of(drafter)) + 2 + units + late) * len(size.contexts)
        sample_s = cells * _TIMED_PASS * token_s
        seconds |= {f"profile {drafter}-{dtype}": _LOADING_S + size.repeats * sample_s for dtype in models["timed"]}
        if size.repeats_after and size.confirm_minutes:
            again = f"profile {drafter}-{models['timed'][0]}{AFTER}"
            seconds[again] = _LOADING_S + size.repeats_after * sample_s
    return seconds | {"choose": _CHOOSING_S}
