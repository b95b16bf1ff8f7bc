"""Result rows, one per policy, sequence and cost file, and rows of single rounds."""
