"""The figures of the published analysis, over any set of runs."""
