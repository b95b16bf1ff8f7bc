"""What serving engines say of their speculative decoding: answers, counters and benchmark files. First answers."""
