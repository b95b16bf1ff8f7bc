"""Block-diffusion drafters: the network, its rows, masks and vocabulary. Begin with dflash."""
