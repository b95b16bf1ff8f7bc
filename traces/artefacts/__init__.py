"""Files beside a trace: cost files, n-grams, fitted tables, optimum, confirmation, a target's config."""
