"""Paired comparisons of runs on the same prompts, and verdicts in a sentence.

Begin with comparisons: `compare_runs` compares every pair by every measure. `verdicts` says a comparison in words,
`averaging` compares pooled means with means per response.
"""
