"""Spellings that earlier versions had: whoever types one is told the new one."""

_OPTIONS: dict[str, dict[str, str]] = {
    "replay": {"--draft": "--draft-set"},
    "compare": {"--draft": "--draft-set"},
    "optimize": {
        "--draft": "--draft-set",
        "--report-on": "--trace, and the trace that settings are chosen on is --dev-trace,",
    },
    "advise": {"--draft": "--draft-set", "--choose-on": "--dev-trace"},
    "report": {"--draft": "--draft-set"},
    "crosscheck": {"--draft": "--draft-set"},
    "export": {"--draft": "--draft-set", "--batches": "--batch", "--made-up": "--synthetic", "--by": "--columns"},
    "import": {"--draft": "--draft-set"},
    "study": {"--draft": "--draft-set"},
    "train": {"--draft": "--draft-set"},
}
"""By command and old option the new one."""

COMMANDS = {
    "import-cost": "import",
    "import-metrics": "import",
    "curves": "study curves",
    "scoring": "study scoring",
    "engine-rules": "study engine-rules",
    "reproduce": "study reproduce",
    "field": "study field",
}
"""By old command the new one."""

GONE = {"sparse": "docs/explanation/findings.md keeps what it showed, and the version that measured it"}
"""Commands that are no more, and where their findings are."""


def renamed_option(prog: str, option: str) -> str:
    """The end of a sentence about an option that is not there, where it has another name now; else empty.

    Args:
        prog: the command as it is typed, ``simlab replay``.
        option: as it was typed.
    """
    command = prog.split()[1] if " " in prog else ""
    new = _OPTIONS.get(command, {}).get(option)
    return "" if new is None else f"; it is {new} now"


def renamed_command(name: str) -> str:
    """A sentence about a command that has another name now, or is no more; empty for all others."""
    if name in COMMANDS:
        return f"`simlab {name}` is `simlab {COMMANDS[name]}` now"
    return f"there is no command `{name}` any more; {GONE[name]}" if name in GONE else ""
