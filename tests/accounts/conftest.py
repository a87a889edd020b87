"""Fixtures of the audit log's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from accounts.audit.verification import anchor_path


@pytest.fixture
def fresh_log(forget_refusals: Callable[[], None]) -> Iterator[None]:
    """Forget what tests before counted as refused, and where they found the log to end."""

    def forget() -> None:
        forget_refusals()
        anchor_path().unlink(missing_ok=True)

    forget()
    yield
    forget()
