"""What a test says that is skipped since something is not installed."""

NO_TORCH = "PyTorch is not installed: `make torch`"
