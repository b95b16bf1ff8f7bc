"""Bootstrap intervals over prompts, slices of rows, corrections of p-values, and what can be detected.

Begin with bootstrap: products of sums over prompts, without each prompt and on prompts drawn again. `intervals` reads
their spread, `prompt_spread` does so for any figure of such sums.
"""
