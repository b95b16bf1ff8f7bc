"""Where work runs: on the threads of this process, or on workers of Ray. Read `simlab.workers.job` first."""
