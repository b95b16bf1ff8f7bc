"""Record speculative decoding once, replay it exactly under any draft-tree policy."""

from simlab.draft import Draft, Marginals, Prompt
from simlab.policy import Needs, Outcome, Policy, Stateless
from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts, texts_of
from simlab.replay import Round, check_needs, hindsight_rounds, hindsight_sequence, replay_sequence, rounds
from simlab.totals import Totals
from simlab.tree import DraftTree

__all__ = [
    "Draft",
    "DraftRows",
    "DraftTree",
    "Marginals",
    "Needs",
    "Outcome",
    "Policy",
    "Prompt",
    "RecordedSequence",
    "RecordedTexts",
    "Round",
    "Stateless",
    "Totals",
    "check_needs",
    "hindsight_rounds",
    "hindsight_sequence",
    "replay_sequence",
    "rounds",
    "texts_of",
]
