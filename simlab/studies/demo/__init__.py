"""The demo: everything simlab does, once, in a few minutes. Begin with demo; live is the part that runs models."""
