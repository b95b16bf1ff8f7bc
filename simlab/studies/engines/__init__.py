"""What real serving engines do, beside what a trace predicts."""
