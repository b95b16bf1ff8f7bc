"""Tables, intervals and drawings made from results."""
