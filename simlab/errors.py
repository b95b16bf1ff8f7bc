"""What can go wrong in a way that a caller may want to catch."""


class SimlabError(Exception):
    """Something a person can put right; its text is one clear sentence.

    The command line prints it without a traceback and leaves with exit code 2.
    """


class TraceError(SimlabError):
    """A trace that is damaged, incomplete, foreign, or newer than this simlab."""


class MissingChannelError(SimlabError):
    """A policy or an option asks for something that the trace does not hold."""


class ModelError(SimlabError):
    """A model that cannot be fetched or loaded, or that does not fit its partner."""


class PromptError(SimlabError):
    """A prompt or completion file that cannot be used."""


class PolicyError(SimlabError):
    """An unknown policy, or settings that do not fit it."""


class CostError(SimlabError):
    """A cost file that cannot be read, or does not cover what it is to price."""
