"""What an export may be told: read from a form or a body, checked as a whole, kept as plain JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from falconweb.errors import Invalid
from telemetry.delivery.senders import trust_of
from telemetry.delivery.syslog import FACILITIES
from telemetry.delivery.targets import syslog_endpoint, webhook_endpoint
from telemetry.events.filters import FILTERS, Filter
from telemetry.exports.columns import COLUMNS, USUAL
from telemetry.exports.formats import Shape
from telemetry.exports.models import ExportDefinition, Format, Kind, Schedule, Span

LONGEST_NAME, LONGEST_SECRET, LONGEST_CA = 100, 200, 100_000
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}(/[A-Za-z0-9][A-Za-z0-9._-]{0,59}){0,3}")
MOST_FILES, MOST_DAYS, MOST_MINUTES, MOST_BATCH = 10_000, 3650, 10_080, 1000
# Options of files and of runs with an end: no stream heeds them.
NOT_OF_STREAMS = frozenset({"folder", "keep_files", "keep_days", "minutes"})


@dataclass(frozen=True)
class Options:
    """What depends on target and format.

    `address` is a webhook's URL or a syslog server's udp://, tcp:// or tls://; `ca` (PEM) replaces the system's trust.
    `folder` is below the folder of exports. `gzip` is for files and webhooks. `keep_files` and `keep_days` are how many
    files stay, and how long (0: without limit); `minutes` is how long a run may go on, `batch` how many events go in
    one request.
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
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Return options that were kept."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True)
class Wanted:
    """A definition as somebody wants it; `secret` None keeps the one that there is."""

    name: str
    format: str
    target: str
    filter: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = USUAL
    options: Options = field(default_factory=Options)
    schedule: str = Schedule.NONE
    cron: str = ""
    span: str = Span.ALL
    enabled: bool = True
    secret: str | None = None

    def checked(self) -> Wanted:
        """Return it as it is kept; raises Invalid with a sentence for each field that is wrong."""
        errors: dict[str, str] = {}
        name = " ".join(self.name.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            errors["name"] = f"Give a name of at most {LONGEST_NAME} characters."
        for value, choices, which in (
            (self.format, Format.values, "format"), (self.target, Kind.values, "target"),
            (self.schedule, Schedule.values, "schedule"), (self.span, Span.values, "span"),
        ):  # fmt: skip
            if value not in choices:
                errors[which] = f"One of {', '.join(choices)}."
        columns = tuple(dict.fromkeys(self.columns))
        if not columns or not set(columns) <= set(COLUMNS):
            errors["columns"] = f"At least one of {', '.join(COLUMNS)}."
        if self.secret and (len(self.secret) > LONGEST_SECRET or not self.secret.isprintable()):
            errors["secret"] = f"Give at most {LONGEST_SECRET} printable characters."
        kept = self._filter(errors)
        if not errors:
            self._check_together(errors)
            self._check_options(errors)
        if errors:
            raise Invalid("The export cannot be defined so.", errors=errors)
        cron = " ".join(self.cron.split()) if self.schedule == Schedule.CRON else ""
        span = Span.NEW if self.schedule == Schedule.STREAM else self.span
        return Wanted(
            name, self.format, self.target, kept, columns, self.options, self.schedule, cron, span, self.enabled,
            self.secret,
        )  # fmt: skip

    def _filter(self, errors: dict[str, str]) -> dict[str, list[str]]:
        if unknown := sorted(set(self.filter) - set(FILTERS)):
            errors["filter"] = f"'{unknown[0][:40]}' is no member of a filter: {', '.join(FILTERS)}."
            return {}
        try:
            return filter_kept(Filter.of(self.filter))
        except Invalid as error:
            errors.update(error.details.get("errors", {"filter": error.sentence}))
            return {}

    def _check_together(self, errors: dict[str, str]) -> None:
        if self.target == Kind.SYSLOG and self.format == Format.CSV:
            errors["format"] = "A syslog server takes messages: choose syslog, CEF or JSON Lines."
        if self.schedule == Schedule.STREAM and self.target in {Kind.DOWNLOAD, Kind.DIRECTORY}:
            errors["schedule"] = "A file has an end: all the time is for webhooks and syslog servers."
        if self.schedule == Schedule.CRON:
            try:
                next_time(self.cron, datetime.now(UTC))
            except Invalid as error:
                errors["cron"] = error.sentence

    def _check_options(self, errors: dict[str, str]) -> None:
        one = self.options
        if self.target in {Kind.WEBHOOK, Kind.SYSLOG}:
            try:
                (webhook_endpoint if self.target == Kind.WEBHOOK else syslog_endpoint)(one.address)
            except Invalid as error:
                errors["address"] = error.sentence
            try:
                trust_of(one.ca)
            except Invalid as error:
                errors["ca"] = error.sentence
        if self.target == Kind.DIRECTORY and not FOLDER.fullmatch(one.folder):
            errors["folder"] = "Letters, digits, '.', '_' and '-', up to four parts apart by '/', such as audit/siem."
        if one.facility not in FACILITIES:
            errors["facility"] = f"One of {', '.join(FACILITIES)}."
        if one.cef_version not in {0, 1}:
            errors["cef_version"] = "0 or 1."
        for name, least, most in (
            ("keep_files", 0, MOST_FILES), ("keep_days", 0, MOST_DAYS), ("minutes", 1, MOST_MINUTES),
            ("batch", 1, MOST_BATCH),
        ):  # fmt: skip
            if not least <= getattr(one, name) <= most:
                errors[name] = f"Give a number from {least} to {most}."
        if len(one.ca) > LONGEST_CA:
            errors["ca"] = "That is more than a chain of certificates."

    def shape(self) -> Shape:
        """Return how events are written."""
        return shape_of(self.format, self.columns, self.options)


def wanted_of(row: ExportDefinition) -> Wanted:
    """Return a definition as somebody wanted it; its secret is not told."""
    return Wanted(
        name=row.name,
        format=row.format,
        target=row.target,
        filter=row.filter,
        columns=tuple(row.columns),
        options=Options.of(row.options),
        schedule=row.schedule,
        cron=row.cron,
        span=row.span,
        enabled=row.enabled,
    )


def sends_the_same(one: Wanted, other: Wanted) -> bool:
    """Tell whether a stream sends the same to the same receiver by both, but for the secret."""
    return _sent(one) == _sent(other)


def _sent(wanted: Wanted) -> tuple[object, ...]:
    options = {name: value for name, value in asdict(wanted.options).items() if name not in NOT_OF_STREAMS}
    # A form ends lines otherwise than a body of the API.
    options["ca"] = wanted.options.ca.split()
    kept = {name: list(values) for name, values in wanted.filter.items()}
    return wanted.format, wanted.target, kept, tuple(wanted.columns), options, wanted.schedule, wanted.span


def shape_of(format_: str, columns: Sequence[str], options: Options) -> Shape:
    """Return how events are written."""
    return Shape(format_, tuple(columns), facility=options.facility, cef_version=options.cef_version)


def filter_kept(wanted: Filter) -> dict[str, list[str]]:
    """Return a filter as plain JSON; `Filter.of` reads the same one."""
    kept: dict[str, list[str]] = {}
    for name, value in wanted.parameters():
        kept.setdefault(name, []).append(value)
    return kept


def next_time(cron: str, after: datetime) -> datetime:
    """Return when a cron expression (five fields, UTC) is due next; raises Invalid for one that never is."""
    if len(cron.split()) != 5 or len(cron) > 100:
        raise Invalid("Give the five fields of cron: minute, hour, day, month, day of the week, such as 15 3 * * *.")
    try:
        return next(CronSim(cron, after.astimezone(UTC)))
    except CronSimError as error:
        raise Invalid(f"This is no cron expression: {error}.") from error
    except StopIteration as error:
        raise Invalid("There is no such day in the next 50 years.") from error
