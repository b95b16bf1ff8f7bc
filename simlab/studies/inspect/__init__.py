"""What a file holds, as text and JSON: traces, checkpoints, cost files, tables, results. Begin with inspect."""
