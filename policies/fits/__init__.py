"""Tables that are fitted on recorded texts: `calibration`, `ranks`, and a `price` of time.

`edge_sums` has the sums from which reliability curves and losses of edge models are drawn.
"""
