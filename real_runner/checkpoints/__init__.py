"""Layouts of drafters' checkpoints, and what can be said of one before it is loaded. Begin with files."""
