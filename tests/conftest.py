"""Hypothesis profiles: CI tries the same examples every time; compiled code makes deadlines meaningless."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
