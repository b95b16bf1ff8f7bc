"""How passes of the models run: caches, batches, compiled layers, captured graphs. Begin with executions.

executions names the ways and prepare sets them up on loaded models. kv_buffers holds keys and values of one text,
batched_* of several; graph_* captures passes of fixed sizes; compiled_layers fuses operations.
"""
