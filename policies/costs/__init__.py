"""What rounds cost: cost tables, views of them, and machines that nobody measured.

Read `curves` first: from samples to a `simlab.cost.CostTable`. `round_costs` is what kernels read of one. `views` has
the convex view, `pass_tables` a batch's passes by their tokens as engines keep them, `what_if` a machine with something
changed, `roofline` with `layer_sizes` a fitted model of a pass, and `launch_bound` a warning for prices that are too
flat.
"""
