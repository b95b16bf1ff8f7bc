"""How passes of the models run: caches, batches, compiled layers, captured graphs. Begin with executions.

executions names the ways and prepare sets them up on loaded models. kv_buffers holds keys and values of one text
or of several; graph_* and text_passes capture passes of fixed sizes, of one text and of many; compiled_layers
fuses operations.
"""
