"""Every named policy, in each variant that goes a way of its own through the code."""

from collections.abc import Mapping

from simlab.policies.artefacts import Artefacts
from simlab.policies.parsing.describe import describe_policies
from simlab.policies.parsing.parse import NamedPolicy, parse_policies

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "chain": ("", "length=3"),
    "ddtree": ("budget=24",),
    "joint": ("budget=24",),
    "joint-throughput": ("budget=24", "budget=24,look_ahead=1"),
    "entropy-width": (
        "budget=24",
        "budget=24,power=2,base_width=2,most_width=5,top_k=16",
        "budget=24,caps=coverage",
        "budget=24,caps=probability",
        'budget=24,caps=bins,entropies="0.5,2",widths="1,4,9"',
    ),
    "caddtree": ("", "look_ahead=0,overhead=true", "look_ahead=3", "tile=8"),
    "bastion": (
        "",
        "floor=1,step=1,overhead=false",
        "floor=4,doubling=true,top_k=16",
        "floor=1,step=1,cost_model=roofline",
    ),
    "price": ("", "rate=60", "look_ahead=2,memory=0.5"),
    "calibrated": (
        "budget=24",
        "stop=survival",
        "stop=ratio",
        "stop=floor,floor=8,step=8",
        "stop=price",
        "stop=price,rate=60",
    ),
    "presto": (
        "budget=24",
        "budget=24,ngram_weight=0",
        "budget=24,counts=text",
        "budget=24,counts=both,text_share=0.3",
        "budget=24,adaptive=true",
        "budget=24,renormalised=true",
        "budget=24,shape=beam,beam_width=4",
        "budget=24,shape=beam,counts=both,adaptive=true,renormalised=true",
    ),
    "expand-parent": ("budget=24", "budget=24,caps=top2gap", 'budget=24,caps="4,3,1"', 'budget=24,caps="4,2.."'),
    "eagle2-beam": ("budget=24", "budget=24,beam=3,depth=2"),
    "sequoia": ("budget=24", "size=hardware"),
    "d2sd-boundary": ("", "boundaries=2,below=0"),
}
"""Settings by name; a policy that is not here goes with its defaults."""

FILLED_IN = 24
"""For a setting that must be given and is not named above."""


def every_policy(shelf: Artefacts, variants: Mapping[str, tuple[str, ...]] = VARIANTS) -> list[NamedPolicy]:
    """All policies of the table in order, those of later days too; plain decoding is the first.

    Args:
        shelf: with all that they were fitted or measured with.
        variants: settings by name.
    """
    texts = []
    for one in describe_policies():
        for settings in variants.get(one.name, ("",)):
            required = [field.name for field in one.fields if field.required and f"{field.name}=" not in settings]
            pairs = ",".join([*filter(None, [settings]), *(f"{name}={FILLED_IN}" for name in required)])
            texts.append(f"{one.name}:{pairs}" if pairs else one.name)
    return parse_policies(texts, shelf)
