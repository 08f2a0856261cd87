"""What several subcommands need: a file opened with a progress bar, a range of steps."""
