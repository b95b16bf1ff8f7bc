"""Studies join a trace, policies, prices and models into results: one module or package for each command."""
