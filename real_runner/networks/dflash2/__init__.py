"""DFlash 2: config is what its selector and its drafter are, selector the scores and the channel."""
