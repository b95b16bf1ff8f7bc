"""Where the tests find files of the repository."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
REPOSITORY = TESTS.parent
DOCS = REPOSITORY / "docs"
GOLDEN = TESTS / "golden"
SHARED = REPOSITORY.parent / "shared"
"""Prompts and texts beside a clone; tests that read them say so where they are not there."""
