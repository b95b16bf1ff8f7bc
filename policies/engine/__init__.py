"""Replay of many policies at once, and the bounds in hindsight. Begin with replay."""
