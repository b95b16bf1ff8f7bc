"""Studies of slin-zhq/Domino-Tree: records reads theirs as tables; rounds, caddtree, gsm8k and lossless are studies."""
