"""What an engine did, beside what a trace predicts: rounds, lengths, counts, and the verdict. Begin at `predicted`."""
