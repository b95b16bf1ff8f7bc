"""An offline simulator for speculative decoding: record once, replay any draft-tree policy exactly.

    import simlab

    trace = simlab.sample_trace()
    table = simlab.replay(trace, ["chain", "ddtree:budget=8/16/64"])
    simlab.compare(table, ["ddtree:budget=16", "chain"])

Each function is the study that the command of the same name calls. Names are loaded when they are first used, so that
importing simlab takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # What type checkers and editors see; at run time `__getattr__` loads the same names.
    from simlab.channels import Pool, Transitions
    from simlab.channels.needs import TraceCapabilities
    from simlab.draft import Draft, Marginals, Prompt
    from simlab.errors import SimlabError
    from simlab.policy import ChannelNeed, Needs, Outcome, Policy, Stateless
    from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts, texts_of
    from simlab.sequence_replay import (
        Round,
        Totals,
        check_needs,
        hindsight_rounds,
        hindsight_sequence,
        replay_sequence,
        rounds,
    )
    from simlab.studies.compare import compare
    from simlab.studies.confirm.confirm import confirm
    from simlab.studies.curves import curves
    from simlab.studies.engines.advise import advise
    from simlab.studies.engines.crosscheck import crosscheck
    from simlab.studies.engines.import_files import import_files, import_timings
    from simlab.studies.engines.read_metrics import import_metrics
    from simlab.studies.engines.rules import engine_rules
    from simlab.studies.export.export import export
    from simlab.studies.field.field import field
    from simlab.studies.inputs.trace import sample_trace
    from simlab.studies.inspect.inspect import inspect
    from simlab.studies.merge import merge
    from simlab.studies.optimize.optimize import optimize
    from simlab.studies.plot import plot
    from simlab.studies.policies import list_policies
    from simlab.studies.profile.profile import profile
    from simlab.studies.prompts.prompts import prompts
    from simlab.studies.record import add_channel, add_draft, record
    from simlab.studies.replay.replay import replay
    from simlab.studies.report.report import report
    from simlab.studies.reproduce.reproduce import reproduce
    from simlab.studies.scoring import scoring
    from simlab.studies.show_round import show_round
    from simlab.traces.reader import open_trace
    from simlab.tree import DraftTree

_MODULES = {
    "ChannelNeed": "simlab.policy",
    "Draft": "simlab.draft",
    "DraftRows": "simlab.recorded",
    "DraftTree": "simlab.tree",
    "TraceCapabilities": "simlab.channels.needs",
    "Marginals": "simlab.draft",
    "Needs": "simlab.policy",
    "Outcome": "simlab.policy",
    "Policy": "simlab.policy",
    "Pool": "simlab.channels",
    "Prompt": "simlab.draft",
    "RecordedSequence": "simlab.recorded",
    "RecordedTexts": "simlab.recorded",
    "Round": "simlab.sequence_replay",
    "SimlabError": "simlab.errors",
    "Stateless": "simlab.policy",
    "Totals": "simlab.sequence_replay",
    "Transitions": "simlab.channels",
    "add_channel": "simlab.studies.record",
    "add_draft": "simlab.studies.record",
    "advise": "simlab.studies.engines.advise",
    "check_needs": "simlab.sequence_replay",
    "compare": "simlab.studies.compare",
    "confirm": "simlab.studies.confirm.confirm",
    "crosscheck": "simlab.studies.engines.crosscheck",
    "curves": "simlab.studies.curves",
    "engine_rules": "simlab.studies.engines.rules",
    "export": "simlab.studies.export.export",
    "field": "simlab.studies.field.field",
    "hindsight_rounds": "simlab.sequence_replay",
    "hindsight_sequence": "simlab.sequence_replay",
    "import_files": "simlab.studies.engines.import_files",
    "import_metrics": "simlab.studies.engines.read_metrics",
    "import_timings": "simlab.studies.engines.import_files",
    "inspect": "simlab.studies.inspect.inspect",
    "list_policies": "simlab.studies.policies",
    "merge": "simlab.studies.merge",
    "open_trace": "simlab.traces.reader",
    "optimize": "simlab.studies.optimize.optimize",
    "plot": "simlab.studies.plot",
    "profile": "simlab.studies.profile.profile",
    "prompts": "simlab.studies.prompts.prompts",
    "record": "simlab.studies.record",
    "replay": "simlab.studies.replay.replay",
    "replay_sequence": "simlab.sequence_replay",
    "report": "simlab.studies.report.report",
    "reproduce": "simlab.studies.reproduce.reproduce",
    "rounds": "simlab.sequence_replay",
    "sample_trace": "simlab.studies.inputs.trace",
    "scoring": "simlab.studies.scoring",
    "show_round": "simlab.studies.show_round",
    "texts_of": "simlab.recorded",
}
"""Where each public name is."""

__all__ = [
    "ChannelNeed",
    "Draft",
    "DraftRows",
    "DraftTree",
    "Marginals",
    "Needs",
    "Outcome",
    "Policy",
    "Pool",
    "Prompt",
    "RecordedSequence",
    "RecordedTexts",
    "Round",
    "SimlabError",
    "Stateless",
    "Totals",
    "TraceCapabilities",
    "Transitions",
    "add_channel",
    "add_draft",
    "advise",
    "check_needs",
    "compare",
    "confirm",
    "crosscheck",
    "curves",
    "engine_rules",
    "export",
    "field",
    "hindsight_rounds",
    "hindsight_sequence",
    "import_files",
    "import_metrics",
    "import_timings",
    "inspect",
    "list_policies",
    "merge",
    "open_trace",
    "optimize",
    "plot",
    "profile",
    "prompts",
    "record",
    "replay",
    "replay_sequence",
    "report",
    "reproduce",
    "rounds",
    "sample_trace",
    "scoring",
    "show_round",
    "texts_of",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
