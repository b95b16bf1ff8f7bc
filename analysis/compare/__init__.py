"""Paired comparisons of runs on the same prompts, verdicts in a sentence, and whether two rankings agree.

Begin with comparisons: `compare_runs` compares every pair by every measure. `verdicts` says a comparison in words,
`text` makes the table and its HTML, `averaging` compares pooled means with means per response.
"""
