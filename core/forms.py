"""Errors of services as errors of a form or messages of a page, and typed instants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.dateparse import parse_date, parse_datetime

from core.errors import Conflict, FalconWebError, Invalid
from core.language import _
from core.zones import UNCLEAR_TIME


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


@contextmanager
def refusals_as_messages(request: HttpRequest) -> Iterator[None]:
    """Show the refusals (400, 409) of the services called inside on the next page; what follows them is not done then.

    Other errors, such as missing permissions, have a page of their own.
    """
    try:
        yield
    except FalconWebError as error:
        if error.status not in {400, 409}:
            raise
        messages.error(request, error.sentence)


def parse_instant(text: str) -> datetime | None:
    """Return the instant of a typed day, or day and time, in UTC unless it has an offset; None for anything else."""
    try:
        found = parse_datetime(text)
        if found is None and (day := parse_date(text)) is not None:
            found = datetime.combine(day, time())
        # Instants on the first and the last day of the calendar may not exist in UTC.
        return found and (found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def checked_instant(text: str, name: str, errors: dict[str, str]) -> datetime | None:
    """Return the instant of a text, None for an empty one; an error of this name is added for one that is not valid."""
    found = parse_instant(text)
    if text and found is None:
        is_unclear = text.endswith("]")
        errors[name] = _(UNCLEAR_TIME) if is_unclear else _("Give a day and a time, such as 2026-03-02T10:00Z.")
    return found


MINUTE_FORMAT = "%Y-%m-%dT%H:%M"


class MinuteField(forms.DateTimeField):
    """An instant to the minute, in the person's zone."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MINUTE_FORMAT)
        super().__init__(widget=widget, input_formats=[MINUTE_FORMAT, "%Y-%m-%dT%H:%M:%S"], **options)

    def to_python(self, value: Any) -> datetime | None:
        """Return the instant of a typed time, in UTC; one that comes twice or not at all is refused."""
        try:
            found: datetime | None = super().to_python(value)
        except ValidationError as error:
            if error.code == "ambiguous_timezone":
                raise ValidationError(_(UNCLEAR_TIME), code=error.code) from error
            raise
        try:
            return found and found.astimezone(UTC)
        except OverflowError as error:  # at either end of the calendar
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error
