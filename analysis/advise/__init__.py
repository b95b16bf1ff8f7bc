"""Go or no-go: plain decoding, a chain or a tree at each batch size, and what would have to change. First advice."""
