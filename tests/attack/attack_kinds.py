"""All kinds of input, by name."""

import kinds_additions
import kinds_artefacts
import kinds_command_lines
import kinds_engines
import kinds_places
import kinds_policies
import kinds_results
import kinds_texts
import kinds_traces
from attack_cases import Kind

_MODULES = (
    kinds_traces,
    kinds_results,
    kinds_artefacts,
    kinds_texts,
    kinds_policies,
    kinds_command_lines,
    kinds_additions,
    kinds_engines,
    kinds_places,
)

KINDS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
