"""The trees of a report: which texts are shown, and their words."""

from collections.abc import Sequence

from simlab.analysis.report.parts import Part, TreeExplorer
from simlab.analysis.report.trees import ShownPolicy, TreeCollector
from simlab.channels.needs import channels_read
from simlab.policies.parsing.parse import NamedPolicy
from simlab.studies.inputs.decoder import decoder_of
from simlab.studies.report.inputs import ReportInputs


def explorer(inputs: ReportInputs, named: Sequence[NamedPolicy], num_texts: int, missing: list[str]) -> Part:
    """The trees of some policies on some texts.

    Args:
        inputs: with a trace.
        named: the policies.
        num_texts: texts that are shown, taken from each dataset in turn.
        missing: gets a sentence where words cannot be shown.
    """
    assert inputs.trace is not None
    decode = decoder_of(inputs.trace)
    if decode is None:
        missing.append(
            "Trees show token ids, not words: the target's tokenizer is not here (pip install 'simlab[models]', and "
            "fetch the target once)."
        )
    channels = channels_read(one.policy for one in named)
    trees = TreeCollector([ShownPolicy(one.label, one.policy) for one in named], decode)
    for recorded in inputs.trace.recorded(inputs.draft, _spread(inputs, num_texts), channels):
        trees.add(recorded)
    return TreeExplorer(trees.values())


def _spread(inputs: ReportInputs, number: int) -> list[int]:
    """Texts with rounds, taken from each dataset in turn."""
    assert inputs.trace is not None
    wanted = set(inputs.wanted)
    sets: dict[str, list[int]] = {}
    for one in inputs.trace.sequences():
        if one.index in wanted and len(one.text) > 1:
            sets.setdefault(one.prompt.dataset, []).append(one.index)
    longest = max(map(len, sets.values()), default=0)
    in_turn = [own[place] for place in range(longest) for own in sets.values() if place < len(own)]
    return sorted(in_turn[:number])
