"""Intervals over prompts, slices of rows, corrections of p-values, and what can be detected.

Begin with jackknife: products of sums over prompts, and without each prompt. `intervals` reads their spread,
`prompt_spread` does so for any figure of such sums.
"""
