"""What a test says that is skipped since something is not installed."""

from importlib.util import find_spec

import pytest

NO_TORCH = "PyTorch is not installed: `make torch`"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason=NO_TORCH)
