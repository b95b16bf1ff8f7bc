"""Recording a trace: prompts and completions, batches, shards, several devices. Begin with record.

options is what a person asks; prompts and sources read what is recorded, answers lets the target write, texts goes
along what it wrote; manifests says in the trace what was recorded; static_estimate and dry_run say beforehand what it
will take.
"""
