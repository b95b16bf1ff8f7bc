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
    from simlab.channels import Pool as Pool
    from simlab.channels import Transitions as Transitions
    from simlab.channels.needs import TraceCapabilities as TraceCapabilities
    from simlab.draft import Draft as Draft
    from simlab.draft import Marginals as Marginals
    from simlab.draft import Prompt as Prompt
    from simlab.errors import SimlabError as SimlabError
    from simlab.policy import ChannelNeed as ChannelNeed
    from simlab.policy import Needs as Needs
    from simlab.policy import Outcome as Outcome
    from simlab.policy import Policy as Policy
    from simlab.policy import Stateless as Stateless
    from simlab.recorded import DraftRows as DraftRows
    from simlab.recorded import RecordedSequence as RecordedSequence
    from simlab.recorded import RecordedTexts as RecordedTexts
    from simlab.recorded import texts_of as texts_of
    from simlab.sequence_replay import Round as Round
    from simlab.sequence_replay import Totals as Totals
    from simlab.sequence_replay import check_needs as check_needs
    from simlab.sequence_replay import hindsight_rounds as hindsight_rounds
    from simlab.sequence_replay import hindsight_sequence as hindsight_sequence
    from simlab.sequence_replay import replay_sequence as replay_sequence
    from simlab.sequence_replay import rounds as rounds
    from simlab.studies.compare import compare as compare
    from simlab.studies.confirm.confirm import confirm as confirm
    from simlab.studies.curves import curves as curves
    from simlab.studies.engines.advise import advise as advise
    from simlab.studies.engines.crosscheck import crosscheck as crosscheck
    from simlab.studies.engines.import_files import import_files as import_files
    from simlab.studies.engines.import_files import import_timings as import_timings
    from simlab.studies.engines.read_metrics import import_metrics as import_metrics
    from simlab.studies.engines.rules import engine_rules as engine_rules
    from simlab.studies.export.export import export as export
    from simlab.studies.field.field import field as field
    from simlab.studies.inputs.trace import sample_trace as sample_trace
    from simlab.studies.inspect.inspect import inspect as inspect
    from simlab.studies.merge import merge as merge
    from simlab.studies.optimize.optimize import optimize as optimize
    from simlab.studies.plot import plot as plot
    from simlab.studies.policies import list_policies as list_policies
    from simlab.studies.profile.profile import profile as profile
    from simlab.studies.prompts.prompts import prompts as prompts
    from simlab.studies.record import add_channel as add_channel
    from simlab.studies.record import add_draft as add_draft
    from simlab.studies.record import record as record
    from simlab.studies.replay.replay import replay as replay
    from simlab.studies.report.report import report as report
    from simlab.studies.reproduce.reproduce import reproduce as reproduce
    from simlab.studies.scoring import scoring as scoring
    from simlab.studies.show_round import show_round as show_round
    from simlab.traces.reader import open_trace as open_trace
    from simlab.tree import DraftTree as DraftTree

_NAMES = {
    "simlab.channels": "Pool Transitions",
    "simlab.channels.needs": "TraceCapabilities",
    "simlab.draft": "Draft Marginals Prompt",
    "simlab.errors": "SimlabError",
    "simlab.policy": "ChannelNeed Needs Outcome Policy Stateless",
    "simlab.recorded": "DraftRows RecordedSequence RecordedTexts texts_of",
    "simlab.sequence_replay": "Round Totals check_needs hindsight_rounds hindsight_sequence replay_sequence rounds",
    "simlab.studies.compare": "compare",
    "simlab.studies.confirm.confirm": "confirm",
    "simlab.studies.curves": "curves",
    "simlab.studies.engines.advise": "advise",
    "simlab.studies.engines.crosscheck": "crosscheck",
    "simlab.studies.engines.import_files": "import_files import_timings",
    "simlab.studies.engines.read_metrics": "import_metrics",
    "simlab.studies.engines.rules": "engine_rules",
    "simlab.studies.export.export": "export",
    "simlab.studies.field.field": "field",
    "simlab.studies.inputs.trace": "sample_trace",
    "simlab.studies.inspect.inspect": "inspect",
    "simlab.studies.merge": "merge",
    "simlab.studies.optimize.optimize": "optimize",
    "simlab.studies.plot": "plot",
    "simlab.studies.policies": "list_policies",
    "simlab.studies.profile.profile": "profile",
    "simlab.studies.prompts.prompts": "prompts",
    "simlab.studies.record": "add_channel add_draft record",
    "simlab.studies.replay.replay": "replay",
    "simlab.studies.report.report": "report",
    "simlab.studies.reproduce.reproduce": "reproduce",
    "simlab.studies.scoring": "scoring",
    "simlab.studies.show_round": "show_round",
    "simlab.traces.reader": "open_trace",
    "simlab.tree": "DraftTree",
}
"""The public names of each module."""

_MODULES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
