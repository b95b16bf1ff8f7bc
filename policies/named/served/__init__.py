"""Rules and trees of serving engines and their plugins: which tokens of a draft they verify, read in their code."""
