"""Numbers made from results: intervals, tables, comparisons, and what each command reports of them.

Begin with `simlab.analysis.table.summaries`: from result rows, one per policy and sequence, to one summary per policy.
`statistics` has the intervals below it; `compare` puts two policies on the same prompts beside each other. Every other
package is named after the command whose numbers and text it makes. A package imports only from those before it:
figure_style, statistics, table, compare, then optimize, confirm, curves, scoring and export, then report.
"""
