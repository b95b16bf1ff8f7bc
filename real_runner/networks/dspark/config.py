"""What DSpark is: a DFlash drafter with a Markov head, and their ``config.json``: sglang 0.5.23's or speculators 0.9's.

Its draft set is the head's own chain (decision 8): the row of a depth stands behind the first candidates of those
above, which is what engines draft. What follows other candidates is a channel of transitions beside it, below the
first candidates of that same draft set; so the chain lies in the channel, and no third kind of rows is needed.

Its confidence head, by which engines end a chain early, is read as far as to see that it is one, and not used.
Nothing here needs torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    check_classes,
    classes_of,
    flag,
    inner_of,
    integer,
    markov_of,
    plain_fields,
    said_once,
    typed,
)
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.speculators import confidence_reads_token, config_from_speculators
from simlab.real_runner.checkpoints.speculators import is_dspark as in_speculators
from simlab.real_runner.checkpoints.weights import check_own
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json
from simlab.real_runner.drafters.config import MARKOV_DRAFTS, DFlashConfig, Markov
from simlab.real_runner.networks.network import HeadReach, Network, Settings, Tensors, reach_with

_CLASSES = ("Qwen3DSparkModel", "LingDSparkModel", "DSparkDraftModel")
_HEAD = ("markov_rank", "markov_head_type")
_CONFIDENCE = ("enable_confidence_head", "use_confidence_head", "confidence_head_with_markov")
_OWN = (*_HEAD, *_CONFIDENCE, "sample_from_anchor")
_BUNDLED, _NESTED = "dspark_", "dspark_config"
_UNSAID = {"final_logit_softcapping": (None, 0), "output_multiplier": (None, 1)}
"""Fields that asked for something in a drafter whose head adds to logits, with what asks for nothing."""


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """What is beside the drafter and its Markov head: whether there is a confidence head is seen by its tensors.

    Attributes:
        markov: the Markov head.
        confidence_inputs: numbers that the confidence head reads of a slot.
    """

    markov: Markov
    confidence_inputs: int

    def check(self, tensors: Tensors, location: object) -> None:
        if tensors:
            shapes = {"proj.weight": (1, self.confidence_inputs), "proj.bias": (1,)}
            check_own(shapes, tensors, f"confidence head in {location}", location)

    def lines(self) -> list[tuple[str, str]]:
        gate = ", behind a gate that reads its state" if self.markov.is_gated else ""
        return [
            ("Markov head", f"a token given the one before it; rank {self.markov.rank}{gate}"),
            ("not used", "a confidence head, where it has one: engines end chains by it, and policies here do not"),
        ]


def spark_from_json(fields: Fields) -> SparkConfig | None:
    """The heads of a checkpoint; None where it is no DSpark."""
    if not _is_dspark(fields):
        return None
    if in_speculators(fields):
        drafter = config_from_speculators(fields)
        assert drafter.markov is not None
        return SparkConfig(drafter.markov, drafter.hidden_size + drafter.markov.rank * confidence_reads_token(fields))
    stated = _stated_fields(fields)
    if bundled := [name for name in fields if name.startswith(_BUNDLED) and name != _NESTED]:
        raise ModelError(
            f"this is a target with a drafter of DSpark inside it ({bundled[0]}), and simlab lacks drafters that are "
            "part of a target; give a drafter that is released on its own"
        )
    values = {name: said_once(name, stated, fields) for name in _HEAD}
    if missing := [name for name, value in values.items() if value is None]:
        raise ModelError(
            f"this is a drafter of DSpark, and its config.json has no {missing[0]!r}, at the top, in dspark_config or "
            "in dflash_config; ask its publisher for a config.json that has it"
        )
    check_classes(fields, _CLASSES, "drafters of DSpark")
    if unsaid := [name for name, nothing in _UNSAID.items() if said_once(name, stated, fields) not in nothing]:
        raise ModelError(
            f"this drafter of DSpark has {unsaid[0]}, and whether its Markov head adds to logits before or behind that "
            "is not said; ask its publisher, or choose a release without it"
        )
    markov = markov_of(values["markov_rank"], values["markov_head_type"])
    with_markov = said_once("confidence_head_with_markov", stated, fields)
    reads_token = with_markov is None or flag(with_markov, "confidence_head_with_markov")
    return SparkConfig(markov, integer(fields.get("hidden_size")) + markov.rank * reads_token)


def _stated_fields(fields: Fields) -> Mapping[str, object]:
    """What stands in ``dspark_config`` and ``dflash_config``; what stands in both must be the same."""
    both = []
    for name in (_NESTED, "dflash_config"):
        held: object = {} if fields.get(name) is None else fields[name]
        both.append(typed(held, dict, f"the drafter's config.json holds {name}", "an object"))
    return {name: said_once(name, *both) for part in both for name in part}


def _is_dspark(fields: Fields) -> bool:
    if in_speculators(fields) or "speculators_model_type" in fields:
        return in_speculators(fields)
    asked = (name for part in (fields, inner_of(fields)) for name, value in part.items() if value)
    named = any("dspark" in name.lower() for name in classes_of(fields))
    return named or any(name.startswith(("markov_", _BUNDLED)) for name in asked)


def _drafter_from_json(fields: Fields) -> DFlashConfig:
    own, stated = spark_from_json(fields), _stated_fields(fields)
    assert own is not None
    rest = plain_fields({**fields, "dflash_config": stated}, (*_OWN, _NESTED))
    plain, from_root = config_from_json(rest), said_once("sample_from_anchor", stated, fields)
    # As many masks as tokens that are drafted, the root among them or before them.
    is_among = from_root is None or flag(from_root, "sample_from_anchor")
    size = plain.block_size + (not is_among)
    return replace(plain, block_size=size, predicts_from_root=is_among, markov=own.markov)


def _reach(fields: Fields, settings: Settings, is_base: bool) -> HeadReach:
    return reach_with("a Markov head", settings, ("previous", "top_k"), HeadReach)


DSPARK = Network(
    what="a Markov head of DSpark",
    layout=replace(
        ZLAB,
        name="dspark",
        recognises=_is_dspark,
        reads=_drafter_from_json,
        described=lambda fields: "DSpark, as sglang 0.5.23 reads it",
    ),
    reads=spark_from_json,
    reach=_reach,
    module="simlab.real_runner.networks.dspark.head",
    draft_name=MARKOV_DRAFTS,
    first_policies=f"-p chain -p tree:budget=16/32,edges=transitions,channel={MARKOV_DRAFTS}",
    # The Markov head is the drafter's own; what may lie beside the two is the confidence head.
    prefix="confidence_head.",
)
