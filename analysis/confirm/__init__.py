"""Measured results beside predicted ones: the table of `simlab confirm`, errors of prediction, groups of texts.

Begin with table: one row per policy, who won, and how wide the intervals still are. `errors` splits the error of a
prediction into its stages, `groups` reads texts that were served together, `text` makes all of it readable.
"""
