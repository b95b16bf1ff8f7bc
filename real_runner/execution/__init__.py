"""How a pass is run: buffers of keys and values, compiled layers, captured graphs. Begin with prepare."""
