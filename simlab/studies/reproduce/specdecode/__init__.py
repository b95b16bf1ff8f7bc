"""The study of SpecDecode-Bench/simulator: chains replays their records, bench makes the figures, text prints them."""
