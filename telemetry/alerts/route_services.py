"""Adds, changes and removes routes and silences."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime, time, timedelta
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import Target, audited, target_of
from accounts.models import User
from accounts.visibility import row_or_404
from core.endpoints import syslog_endpoint, webhook_endpoint
from core.errors import Conflict, Invalid
from core.language import _, english, gettext_noop, joined
from core.week import WEEK
from core.zones import local_words
from telemetry.alerts.messages import build_notification
from telemetry.alerts.models import AlertSeverity, Delivery, Route, Rule, Silence
from telemetry.alerts.rule_services import SCOPE_COLUMNS, SCOPE_FIELDS, clean_text, refuse_field, save_named, scope_set
from telemetry.alerts.rules import BUILT_IN_RULES

MAX_ROUTES: Final = 100
MAX_OWN_MAILS: Final = 200  # each is asked what it was told, every few seconds
MAX_ADDRESSES: Final = 20
MAX_SECRET_LENGTH: Final = 500


@dataclass(frozen=True, kw_only=True)
class RouteValues:
    """The requested values of a route; a `secret` of None keeps the stored one, '' deletes it."""

    name: str
    kind: str
    address: str = ""
    secret: str | None = None
    severity: str = "Warning"
    scope: str = "all"
    scope_id: int | None = None
    device_kind: str = ""
    enabled: bool = True


# Columns of a row that are as they are given.
ROUTE_FIELDS: Final = tuple(one.name for one in fields(RouteValues) if one.name not in {"secret", *SCOPE_FIELDS})


def route_add(*, person: User, values: RouteValues) -> Route:
    """Add a route; raises Forbidden, Invalid with the fields that are wrong, Conflict for a name that is taken."""
    target = Target(kind="alert route", name=values.name[:100])
    with audited(Action.ALERT_ROUTE_ADD, actor=person, target=target) as act:
        require_administrator(person)
        if Route.objects.filter(person=None).count() >= MAX_ROUTES:
            raise Conflict(_("There are {most} routes already. Delete an unused one.", most=MAX_ROUTES))
        row = Route()
        _fill(row, values, moved=False)
        save_named(row, gettext_noop("route"))
        act.target, act.after = target_of(row), _audit_values(row)
    return row


def route_edit(*, person: User, route: Route, values: RouteValues) -> Route:
    """Change a route; waiting deliveries go to the new address. A stored secret is sent to no other address.

    Raises as `route_add` does.
    """
    with audited(Action.ALERT_ROUTE_EDIT, actor=person, target=target_of(route)) as act:
        require_administrator(person)
        row: Route = row_or_404(Route.objects.select_for_update(of=("self",)), route.pk, gettext_noop("route"))
        act.before = _audit_values(row)
        _fill(row, values, moved=(row.kind, row.address) != (values.kind, values.address.strip()))
        save_named(row, gettext_noop("route"), (*ROUTE_FIELDS, *SCOPE_COLUMNS, "secret_encrypted", "enabled_at"))
        act.after = _audit_values(row)
        # The change may have mended the failure: attempt the waiting deliveries now.
        row.deliveries.waiting().update(next_try_at=timezone.now())
    return row


def route_remove(*, person: User, route: Route) -> None:
    """Delete a route with its log; waiting deliveries are not sent."""
    with audited(Action.ALERT_ROUTE_REMOVE, actor=person, target=target_of(route)) as act:
        require_administrator(person)
        row: Route = row_or_404(Route.objects.select_for_update(of=("self",)), route.pk, gettext_noop("route"))
        act.before = _audit_values(row)
        row.delete()


def own_mails_set(*, person: User, severity: str) -> Route | None:
    """Send a person e-mail of the alerts that they may see, from a severity on; '' ends it, and returns None.

    Raises Invalid without an address or a mail server, and Conflict where too many people asked for it.
    """
    name = f"{person.username[:70]} by e-mail (account {person.pk})"
    with audited(Action.ALERT_OWN_MAILS, actor=person, target=Target(kind="alert route", name=name)) as act:
        row = Route.objects.select_for_update(of=("self",)).filter(person=person).first()
        act.before, act.after = {"severity": row.severity if row is not None else ""}, {"severity": severity}
        if row is not None and (not severity or row.tenant_id != person.tenant_id):
            row.delete()  # with what waits: it is about what another tenant holds
            row = None
        if not severity:
            return None
        if severity not in AlertSeverity.values:
            refuse_field("severity", _("One of {choices}.", choices=", ".join(AlertSeverity.values)))
        if not settings.EMAIL_IS_SENT:
            refuse_field("severity", _("This site sends no e-mail: administrators can set a mail server."))
        if not person.email or (person.tenant_id is None and not person.is_administrator):
            refuse_field("severity", _("Your account has no e-mail address: enter it under Account first."))
        if row is None and Route.objects.exclude(person=None).count() >= MAX_OWN_MAILS:
            raise Conflict(_("Too many people have asked for e-mail: ask an administrator for a route of your tenant."))
        row = row or Route(person=person, name=name, kind=Route.Kind.EMAIL)
        row.scope, row.tenant = ("tenant", person.tenant) if person.tenant_id is not None else ("all", None)
        row.address, row.severity, row.enabled = person.email, severity, True
        save_named(row, gettext_noop("route"))  # two at once make one
    return row


def route_test(*, person: User, route: Route) -> Delivery:
    """Queue a test ahead of waiting deliveries; returns the delivery, whose row will have the result."""
    with audited(Action.ALERT_ROUTE_TEST, actor=person, target=target_of(route)) as act:
        require_administrator(person)
        row: Route = row_or_404(Route.objects.select_for_update(of=("self",)), route.pk, gettext_noop("route"))
        summary = f"Test of the route '{row.name}', sent by {person.get_username()}"
        message = build_notification([], site=settings.CONFIG.address, at=timezone.now())
        delivery = delivery_add(row, summary, {**message, "kind": "test", "summary": summary}, is_test=True)
        act.after = {"delivery": str(delivery.pk)}
    return delivery


def delivery_retry(*, person: User, delivery: Delivery) -> Delivery:
    """Make a delivery due now, also one that failed; raises Conflict where it was delivered."""
    target = Target(kind="delivery", id=str(delivery.pk), name=delivery.summary[:200])
    with audited(Action.DELIVERY_RETRY, actor=person, target=target) as act:
        require_administrator(person)
        row: Delivery = row_or_404(
            Delivery.objects.select_for_update(of=("self",)), delivery.pk, gettext_noop("delivery")
        )
        if row.state == Delivery.State.DELIVERED and row.delivered_at is not None:
            raise Conflict(_("It arrived at {time}.", time=local_words(row.delivered_at)))
        act.before = {"state": row.state}
        now = timezone.now()
        if row.state == Delivery.State.FAILED:
            row.state, row.made_at = Delivery.State.WAITING, now  # restarts the time after which it fails
        row.next_try_at = now
        row.save(update_fields=["state", "made_at", "next_try_at"])
        act.after = {"state": row.state}
    return row


def delivery_add(route: Route, summary: str, content: dict[str, object], *, is_test: bool = False) -> Delivery:
    """Queue a message; call it in a transaction with the route locked, or under a GatheringClaim."""
    last = Delivery.objects.filter(route=route).aggregate(last=Max("number"))["last"] or 0
    return Delivery.objects.create(
        route=route, number=last + 1, summary=summary[:300], content=content, is_test=is_test
    )


def notice_send(sentence: str) -> None:
    """Queue a critical notice that is about no device, for every route of all alerts that is switched on."""
    message = build_notification([], site=settings.CONFIG.address, at=timezone.now())
    with transaction.atomic():
        for route in Route.objects.select_for_update(of=("self",)).filter(enabled=True, scope="all").order_by("pk"):
            if route.kind != Route.Kind.PAGE:
                delivery_add(route, sentence, {**message, "kind": "notice", "summary": sentence, "critical": 1})


def _fill(row: Route, values: RouteValues, *, moved: bool) -> None:
    row.name = " ".join(clean_text(values.name, "name", longest=100, required=True).split())
    if values.kind not in Route.Kind.values:
        refuse_field("kind", _("One of {choices}.", choices=", ".join(Route.Kind.values)))
    if values.severity not in AlertSeverity.values:
        refuse_field("severity", _("One of {choices}.", choices=", ".join(AlertSeverity.values)))
    address = _address(values.kind, clean_text(values.address, "address", longest=500))
    secret = clean_text(values.secret or "", "secret", longest=MAX_SECRET_LENGTH)
    if values.kind != Route.Kind.WEBHOOK and secret:
        refuse_field("secret", _("Only webhooks are signed: leave it empty."))
    if moved and values.secret is None and row.secret_encrypted and values.kind == Route.Kind.WEBHOOK:
        sentence = _("The address changes, and the stored secret is sent to no other address: enter one.")
        refuse_field("secret", sentence)
    if values.secret is not None or values.kind != Route.Kind.WEBHOOK:
        row.set_secret(secret)
    if values.enabled and not row.enabled:
        row.enabled_at = timezone.now()
    row.kind, row.address, row.severity, row.enabled = values.kind, address, values.severity, values.enabled
    scope_set(row, scope=values.scope, scope_id=values.scope_id, device_kind=values.device_kind)


def _address(kind: str, address: str) -> str:
    """Return an address of a kind as stored; raises Invalid."""
    if kind == Route.Kind.PAGE:
        if address:
            refuse_field("address", _("The page has no address: leave it empty."))
        return ""
    if kind == Route.Kind.EMAIL:
        found = email_addresses(address)
        if not found or len(found) > MAX_ADDRESSES:
            sentence = _("Give one e-mail address, or up to {most} with commas between them.", most=MAX_ADDRESSES)
            refuse_field("address", sentence)
        for one in found:
            try:
                validate_email(one)
            except ValidationError:
                refuse_field("address", _("'{address}' is not an e-mail address.", address=one[:100]))
        return ", ".join(found)
    try:
        syslog_endpoint(address) if kind == Route.Kind.SYSLOG else webhook_endpoint(address)
    except Invalid as error:
        refuse_field("address", error.sentence)
    return address


def email_addresses(text: str) -> list[str]:
    """Return the e-mail addresses of a route, each once."""
    return list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def route_values(row: Route) -> RouteValues:
    """Return a route as somebody may want it changed; its secret is kept."""
    return RouteValues(**{name: getattr(row, name) for name in (*ROUTE_FIELDS, *SCOPE_FIELDS)})


def _audit_values(row: Route) -> dict[str, object]:
    return {
        "name": row.name, "kind": row.kind, "address": row.address, "secret": "set" if row.secret_encrypted else "none",
        "severity": row.severity, "scope": english(row.scope_words), "enabled": row.enabled,
    }  # fmt: skip


MAX_SILENCE: Final = timedelta(days=366)


@dataclass(frozen=True, kw_only=True)
class SilenceValues:
    """The requested values of a silence; without `starts_at` it starts now.

    With `from_time` and `until_time` (UTC) it is only for these times, on `days` of the week (none: each; 0 is Sunday).
    """

    ends_at: datetime | None
    why: str
    starts_at: datetime | None = None
    from_time: time | None = None
    until_time: time | None = None
    days: Collection[int] = ()
    scope: str = "all"
    scope_id: int | None = None
    device_kind: str = ""
    rule_id: int | None = None
    built_in: str = ""
    severity: str = ""


def silence_add(*, person: User, values: SilenceValues) -> Silence:
    """Silence alerts until an end; raises Forbidden, and Invalid with the fields that are wrong."""
    with audited(Action.SILENCE_ADD, actor=person, target=Target(kind="silence")) as act:
        require_administrator(person)
        now = timezone.now()
        row = Silence(made_by_name=person.get_username())
        row.why = clean_text(values.why, "why", longest=500, required=True)
        row.starts_at = values.starts_at or now
        errors = _silence_errors(values, now, row.starts_at)
        if errors or values.ends_at is None:
            raise Invalid(joined(errors.values()), errors=errors)
        row.ends_at = values.ends_at
        row.from_time, row.until_time = values.from_time, values.until_time
        row.days = "".join(map(str, sorted(set(values.days))))
        row.severity, row.built_in, row.rule_id = values.severity, values.built_in, values.rule_id
        scope_set(row, scope=values.scope, scope_id=values.scope_id, device_kind=values.device_kind)
        row.save(force_insert=True)
        act.target = Target(kind="silence", id=str(row.pk), name=english(row.scope_words)[:200])
        act.after = {
            "scope": english(row.scope_words),
            "rule": values.rule_id,
            "built_in": row.built_in,
            "severity": row.severity,
            "starts_at": row.starts_at.isoformat(),
            "ends_at": row.ends_at.isoformat(),
            "why": row.why,
            "times": row.times.words.english if row.times is not None else "",
        }
    return row


def silence_end(*, person: User, silence: Silence) -> Silence:
    """End a silence now; alerts that still fire are notified then.

    Raises Forbidden, NotFound, and Conflict where it is over.
    """
    target = Target(kind="silence", id=str(silence.pk), name=english(silence.scope_words)[:200])
    with audited(Action.SILENCE_END, actor=person, target=target) as act:
        require_administrator(person)
        row: Silence = row_or_404(Silence.objects.select_for_update(of=("self",)), silence.pk, gettext_noop("silence"))
        now = timezone.now()
        if row.ends_at <= now:
            raise Conflict(_("It was over at {time}.", time=local_words(row.ends_at)))
        act.before, act.after = {"ends_at": row.ends_at.isoformat()}, {"ends_at": now.isoformat()}
        row.ends_at = now
        row.starts_at = min(row.starts_at, now)
        row.save(update_fields=["ends_at", "starts_at"])
    return row


def _silence_errors(values: SilenceValues, now: datetime, starts_at: datetime) -> dict[str, str]:
    errors: dict[str, str] = {}
    if values.ends_at is None:
        errors["ends_at"] = _("Give an end.")
    elif values.ends_at <= max(now, starts_at):
        errors["ends_at"] = _("Give an end in the future, and after the start.")
    elif values.ends_at - now > MAX_SILENCE:
        errors["ends_at"] = _("At most a year from now.")
    if not set(values.days) <= set(WEEK):
        errors["days"] = _("Give numbers from 0 (Sunday) to 6.")
    if (values.from_time is None) != (values.until_time is None) or (values.days and values.from_time is None):
        errors["until_time" if values.from_time else "from_time"] = _(
            "Give both times of day, or no times and no days."
        )
    if values.severity and values.severity not in AlertSeverity.values:
        errors["severity"] = _("One of {choices}, or none for any.", choices=", ".join(AlertSeverity.values))
    if values.built_in and values.built_in not in BUILT_IN_RULES:
        errors["built_in"] = _("One of {choices}.", choices=", ".join(BUILT_IN_RULES))
    if values.rule_id is not None and not Rule.objects.filter(pk=values.rule_id).exists():
        errors["rule_id"] = _("There is no such rule.")
    if values.rule_id is not None and values.built_in:
        errors["built_in"] = _("Give a rule or a built-in one, not both.")
    return errors
