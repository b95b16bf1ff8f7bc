"""What several studies take: prices of a trace's models, and the artefacts that policies read."""
