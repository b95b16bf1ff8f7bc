"""What the target emits at a position: its choice with keyed noise, how close it was, and which tokens were allowed."""
