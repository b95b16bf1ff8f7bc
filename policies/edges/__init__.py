"""Edge models: how likely is a token after its prefix?

Read `models` first: the protocol `EdgeModel` and the three there are. `children` holds the candidates of one root as
kernels score them, `lattice` those of a channel, where what follows a node depends on its path, `rank_classes` the map
of a calibration, `correction` what a 3-gram adds. `ngram` is the table of a 3-gram, `ngram_logs` its logarithms,
`ngram_counting` counts many texts for a file, and `text_counts` the text so far.
"""
