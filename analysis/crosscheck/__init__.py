"""What an engine did, beside what a trace foretells: rounds, lengths, counts, and the verdict. First foretold."""
