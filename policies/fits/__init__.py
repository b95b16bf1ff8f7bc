"""Tables that are fitted on recorded texts: calibration, ranks, a price of time."""
