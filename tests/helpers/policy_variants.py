"""Every named policy, in each variant that goes a way of its own through the code."""

from collections.abc import Mapping

from simlab.policies import POLICIES
from simlab.policies.artefacts import Artefacts
from simlab.policies.parsing.describe import describe_policies
from simlab.policies.parsing.parse import NamedPolicy, parse_policies

VARIANTS: Mapping[str, tuple[str, ...]] = {
    name: vars(policy)["variants"] for name, policy in POLICIES.items() if "variants" in vars(policy)
}
"""Settings by name, as the classes give them; a policy that gives none goes with its defaults."""

FILLED_IN = {"int": "24", "float": "24", "str": '"chain"'}
"""For a setting that must be given and has no variant, by its kind; a word names a policy."""


def every_policy(artefacts: Artefacts, variants: Mapping[str, tuple[str, ...]] = VARIANTS) -> list[NamedPolicy]:
    """All policies of the table in order, those of later days too; plain decoding is the first.

    Args:
        artefacts: with all that they were fitted or measured with.
        variants: settings by name.
    """
    texts = []
    for one in describe_policies():
        for settings in variants.get(one.name, ("",)):
            required = [field for field in one.fields if field.required and f"{field.name}=" not in settings]
            filled = (f"{field.name}={FILLED_IN[field.kind]}" for field in required)
            pairs = ",".join([*filter(None, [settings]), *filled])
            texts.append(f"{one.name}:{pairs}" if pairs else one.name)
    return parse_policies(texts, artefacts)
