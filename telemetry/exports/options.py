"""The specification of an export: parsed from a form or a body, validated as a whole, stored as plain JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from core.connections import tls_context
from core.endpoints import syslog_endpoint, webhook_endpoint
from core.errors import Invalid
from core.language import _
from telemetry.delivery.formats import FACILITIES
from telemetry.events.filters import FILTERS, EventFilter
from telemetry.exports.formats import COLUMNS, DEFAULT_COLUMNS, EventFormatter
from telemetry.exports.models import ExportDefinition, ExportFormat, ExportRun, ExportSchedule, ExportSpan, ExportTarget

MAX_NAME_LENGTH, MAX_SECRET_LENGTH, MAX_CA_LENGTH = 100, 200, 100_000
FOLDER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}(/[A-Za-z0-9][A-Za-z0-9._-]{0,59}){0,3}")
MAX_FILES, MAX_DAYS, MAX_MINUTES, MAX_BATCH = 10_000, 3650, 10_080, 1000
# Options of files and of runs with an end: streams ignore them.
NOT_OF_STREAMS = frozenset({"folder", "keep_files", "keep_days", "minutes"})


@dataclass(frozen=True)
class ExportOptions:
    """Options that depend on target and format.

    `address` is a webhook's URL or a syslog server's udp://, tcp:// or tls://; `ca` (PEM) replaces the system's trust.
    `folder` is below the folder of exports. `gzip` is for files and webhooks. `keep_files` and `keep_days` limit number
    and age of files (0: without limit); `minutes` is the maximum duration of a run, `batch` the maximum number of
    events in one request.
    """

    address: str = ""
    ca: str = ""
    folder: str = ""
    gzip: bool = False
    keep_files: int = 20
    keep_days: int = 90
    minutes: int = 1440
    batch: int = 500
    facility: str = "local0"
    cef_version: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ExportOptions:
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True)
class ExportSpec:
    """The requested values of a definition; `secret` None keeps the stored one."""

    name: str
    format: str
    target: str
    filter: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = DEFAULT_COLUMNS
    options: ExportOptions = field(default_factory=ExportOptions)
    schedule: str = ExportSchedule.NONE
    cron: str = ""
    span: str = ExportSpan.ALL
    enabled: bool = True
    secret: str | None = None

    def checked(self) -> ExportSpec:
        """Return it normalized; raises Invalid with a sentence for each field that is wrong."""
        errors: dict[str, str] = {}
        name = " ".join(self.name.split())
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            errors["name"] = _("Give a name of at most {most} characters.", most=MAX_NAME_LENGTH)
        for value, choices, which in (
            (self.format, ExportFormat.values, "format"), (self.target, ExportTarget.values, "target"),
            (self.schedule, ExportSchedule.values, "schedule"), (self.span, ExportSpan.values, "span"),
        ):  # fmt: skip
            if value not in choices:
                errors[which] = _("One of {choices}.", choices=", ".join(choices))
        columns = tuple(dict.fromkeys(self.columns))
        if not columns or not set(columns) <= set(COLUMNS):
            errors["columns"] = _("At least one of {choices}.", choices=", ".join(COLUMNS))
        if self.secret and (len(self.secret) > MAX_SECRET_LENGTH or not self.secret.isprintable()):
            errors["secret"] = _("Give at most {most} printable characters.", most=MAX_SECRET_LENGTH)
        kept = self._filter(errors)
        if not errors:
            self._check_together(errors)
            self._check_options(errors)
        if errors:
            raise Invalid(_("The export cannot be defined so."), errors=errors)
        cron = " ".join(self.cron.split()) if self.schedule == ExportSchedule.CRON else ""
        span = ExportSpan.NEW if self.schedule == ExportSchedule.STREAM else self.span
        return ExportSpec(
            name, self.format, self.target, kept, columns, self.options, self.schedule, cron, span, self.enabled,
            self.secret,
        )  # fmt: skip

    def _filter(self, errors: dict[str, str]) -> dict[str, list[str]]:
        if unknown := sorted(set(self.filter) - set(FILTERS)):
            errors["filter"] = _(
                "'{name}' is no member of a filter: {choices}.", name=unknown[0][:40], choices=", ".join(FILTERS)
            )
            return {}
        try:
            return filter_to_json(EventFilter.of(self.filter))
        except Invalid as error:
            errors.update(error.details.get("errors", {"filter": error.sentence}))
            return {}

    def _check_together(self, errors: dict[str, str]) -> None:
        if self.target == ExportTarget.SYSLOG and self.format == ExportFormat.CSV:
            errors["format"] = _("A syslog server takes messages: choose syslog, CEF or JSON Lines.")
        if self.schedule == ExportSchedule.STREAM and self.target in {ExportTarget.DOWNLOAD, ExportTarget.DIRECTORY}:
            errors["schedule"] = _("A file has an end: continuous export is for webhooks and syslog servers.")
        if self.schedule == ExportSchedule.CRON:
            try:
                next_cron_time(self.cron, datetime.now(UTC))
            except Invalid as error:
                errors["cron"] = error.sentence

    def _check_options(self, errors: dict[str, str]) -> None:
        one = self.options
        if self.target in {ExportTarget.WEBHOOK, ExportTarget.SYSLOG}:
            try:
                (webhook_endpoint if self.target == ExportTarget.WEBHOOK else syslog_endpoint)(one.address)
            except Invalid as error:
                errors["address"] = error.sentence
            try:
                tls_context(one.ca)
            except Invalid as error:
                errors["ca"] = error.sentence
        if self.target == ExportTarget.DIRECTORY and not FOLDER_PATTERN.fullmatch(one.folder):
            errors["folder"] = _(
                "Letters, digits, '.', '_' and '-', up to four parts apart by '/', such as audit/siem."
            )
        if one.facility not in FACILITIES:
            errors["facility"] = _("One of {choices}.", choices=", ".join(FACILITIES))
        if one.cef_version not in {0, 1}:
            errors["cef_version"] = _("0 or 1.")
        for name, least, most in (
            ("keep_files", 0, MAX_FILES), ("keep_days", 0, MAX_DAYS), ("minutes", 1, MAX_MINUTES),
            ("batch", 1, MAX_BATCH),
        ):  # fmt: skip
            if not least <= getattr(one, name) <= most:
                errors[name] = _("Give a number from {least} to {most}.", least=least, most=most)
        if len(one.ca) > MAX_CA_LENGTH:
            errors["ca"] = _("That is too long for a chain of certificates.")

    def shape(self) -> EventFormatter:
        options = self.options
        return EventFormatter(self.format, tuple(self.columns), options.facility, options.cef_version)


SPEC_FIELDS = tuple(one.name for one in fields(ExportSpec) if one.name != "secret")


def spec_of(origin: ExportDefinition | ExportRun) -> ExportSpec:
    """Return the values of a definition, or those that a run began with, without the secret."""
    kept = origin.snapshot if isinstance(origin, ExportRun) else vars(origin)
    values = {name: kept[name] for name in SPEC_FIELDS}
    return ExportSpec(**{**values, "options": ExportOptions.of(values["options"])})


def delivers_same(one: ExportSpec, other: ExportSpec) -> bool:
    """Return whether a stream sends the same to the same receiver by both, apart from the secret."""
    return _delivery_parts(one) == _delivery_parts(other)


def _delivery_parts(spec: ExportSpec) -> tuple[object, ...]:
    options = {name: value for name, value in asdict(spec.options).items() if name not in NOT_OF_STREAMS}
    # Forms and bodies of the API have different line ends.
    options["ca"] = spec.options.ca.split()
    kept = {name: list(values) for name, values in spec.filter.items()}
    return spec.format, spec.target, kept, tuple(spec.columns), options, spec.schedule, spec.span


def filter_to_json(selection: EventFilter) -> dict[str, list[str]]:
    """Return a filter as plain JSON; `EventFilter.of` restores it."""
    kept: dict[str, list[str]] = {}
    for name, value in selection.parameters():
        kept.setdefault(name, []).append(value)
    return kept


def next_cron_time(cron: str, after: datetime) -> datetime:
    """Return the next time of a cron expression (five fields, UTC); raises Invalid where there is none."""
    if len(cron.split()) != 5 or len(cron) > 100:
        raise Invalid(_("Give the five fields of cron: minute, hour, day, month, day of the week, such as 15 3 * * *."))
    try:
        return next(CronSim(cron, after.astimezone(UTC)))
    except CronSimError as error:
        raise Invalid(_("This is no cron expression: {error}.", error=error)) from error
    except StopIteration as error:
        raise Invalid(_("There is no such day in the next 50 years.")) from error
