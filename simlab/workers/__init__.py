"""Where work runs: on threads, on workers of Ray, or in parts. Read `simlab.workers.threads` first."""
