"""Policies as people type them. Read `parse` first: ``NAME:key=value`` and grids to policies.

`user_file` loads a class from a file of one's own, and `describe` says what each policy is.
"""
