"""Errors of services as errors of a form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms

from core.errors import Conflict, FalconWebError, Invalid


def add_service_errors(form: forms.Form, error: FalconWebError) -> None:
    """Add a service's errors to the fields they concern, and the rest to the form."""
    sentences: dict[str, str] = error.details.get("errors", {})
    for field, sentence in sentences.items():
        form.add_error(field if field in form.fields else None, sentence)
    if not sentences:
        form.add_error(None, error.sentence)


@contextmanager
def service_errors_in(form: forms.Form) -> Iterator[None]:
    """Add the errors of the services called inside to the form: what follows them in the block is not done then."""
    try:
        yield
    except (Invalid, Conflict) as error:
        add_service_errors(form, error)


MINUTE_FORMAT = "%Y-%m-%dT%H:%M"


class UtcMinuteField(forms.DateTimeField):
    """An instant in UTC, to the minute."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MINUTE_FORMAT)
        super().__init__(widget=widget, input_formats=[MINUTE_FORMAT, "%Y-%m-%dT%H:%M:%S"], **options)
