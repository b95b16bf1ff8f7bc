"""What is too much: `memory` that would be taken, and `typed_numbers`."""
