"""Recording a trace: prompts and completions, batches, shards, several devices. Begin with record."""
