"""Result rows summed up by policy: acceptance lengths, speeds, and their table as text and as HTML.

Begin with summaries. `text` turns them into the table that `simlab replay` prints; `estimates` has a figure with its
interval, `prompt_sums` what comparisons read.
"""
