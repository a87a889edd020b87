"""Viewer, stranger, owner and nobody, against everything that changes something: a new route is played by itself."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from django.apps import apps
from django.db import connections, transaction
from django.db.models import F
from django.test import Client
from django.urls import resolve, reverse
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry
from accounts.declaration import Audience, declaration_of
from accounts.models import Tenant, Token, User
from accounts.second_factor.models import TotpDevice
from benchmarks.workloads.catalogue import spec_of
from fabric.inventory.models import Device, HostPort, SavedFilter
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.selectors import ownership_revision
from fabric.operations.models import Operation, Plan
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_change
from falconweb.audit_middleware import HEADER
from falconweb.navigation import addresses
from telemetry.events.models import SavedView
from telemetry.history.models import Dashboard
from tests.access.lab import Lab, lab, made_lab, passkey_row
from tests.access.test_matrix import audience_of, methods_of
from tests.turns import at_night

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
WRITES = ("POST", "PUT", "PATCH", "DELETE")
# By these everybody changes what is their own.
OWN = {
    Action.SIGN_IN, Action.SIGN_OUT, Action.PASSWORD_CHANGE, Action.TOKEN_CREATE, Action.DASHBOARD_ADD,
    Action.DEVICE_FILTER_ADD, Action.PASSKEY_ADD, Action.TOTP_ADD, Action.TOTP_REMOVE, Action.RECOVERY_CODES_RENEW,
    Action.DEPLOYMENT_MAKE, Action.EVENT_VIEW_ADD, Action.RECOMMENDATION_ASK, Action.SIGN_IN_CONFIRM,
    Action.SESSIONS_END, Action.ACCESS_END, Action.ALERT_OWN_MAILS, Action.PREFERENCE_SET,
}  # fmt: skip
# What no body of these tests gets an administrator: the BMC is asked first and does not answer, who gives leases asks
# nobody for one, whoever is signed in does not sign in, no passkey or app answers, no password is right, and nobody
# withdraws what another has requested.
REFUSED = {
    Action.CHASSIS_ADD, Action.CHASSIS_EDIT, Action.CHASSIS_LOCATE, Action.PORT_COUNTERS, Action.LEASE_REQUEST,
    Action.SIGN_IN, Action.PASSKEY_ADD, Action.TOTP_ADD, Action.APPROVAL_WITHDRAW, Action.SIGN_IN_CONFIRM,
}  # fmt: skip
# Nor these: no mail is sent here, and the administrator has no address.
REFUSED |= {Action.PASSWORD_FORGOTTEN, Action.PASSWORD_SET, Action.ALERT_OWN_MAILS}
# Here whoever is no viewer makes what is their tenant's.
OF_USERS = {"records:import", "api:records", "api:traces", "api:sweep_preview"}
# What is kept of attempts and visits is no object of the lab.
RECORDS = {"axes", "sessions"}
# An allocation file that detaches the owner's device.
FILE = {
    "format": "falconweb-allocation", "version": 1,
    "chassis": [{"name": "falcon", "drawers": [{"number": 1, "slots": [{"slot": 1, "attached_to": None}]}]}],
}  # fmt: skip
SECRET = "tell-nobody-of-this-1"
SECRET_FIELDS = (
    "password", "current", "new", "again", "csrfmiddlewaretoken", "secret", "token", "api_key", "credentials",
    "private_key",
)  # fmt: skip
SECRETS = dict.fromkeys(SECRET_FIELDS, SECRET)
# The output of a tool that becomes a run.
OUTPUT = {
    "version": 2, "nccl_version": 22703, "config": {},
    "results": [{"size": 1024, "out_of_place": {"time": 11.2, "alg_bw": 0.1, "bus_bw": 0.1, "nwrong": 0}}],
}  # fmt: skip
TRACE = {"nodes": [{"id": 1, "type": "COMP_NODE", "durationMicros": 1000}]}
FILES = {"api:allocation": FILE, "api:records": OUTPUT, "api:traces": TRACE, "api:deployments": {"command": "true"}}


def asked_run(host: int | None) -> dict[str, Any]:
    """Return a run on the CPU of a host as the API takes it."""
    place = {"host_id": host, "cpu": True}
    return {"workload": "mnist_cnn", "preset": "tiny", "composition": place, "executor": "simulated"}


def asked_sweep(host: int | None) -> dict[str, Any]:
    """Return a sweep on the CPU of a host as the API takes it."""
    grid = {"workload": ["mnist_cnn"], "preset": "tiny", "host": [host], "placement": ["cpu"], "count": [2]}
    return {"grid": {**grid, "executor": "simulated"}}


def recommended_run(host: int | None) -> dict[str, Any]:
    """Return a run on the CPU of a host as a recommendation has it."""
    spec = msgspec.to_builtins(spec_of("mnist_cnn", "tiny", {}))
    return {"spec": spec, "composition": {"host": host, "cpu": True}, "executor": "simulated"}


MANIFEST = "name: a\ngpus: 0\nlearners: 2\nframework: {name: pytorch}\nworkload: mnist_cnn\n"
ASKS_FOR_A_RUN: dict[str, Callable[[int | None], dict[str, Any]]] = {
    "api:sweeps": asked_sweep,
    "api:sweep_preview": asked_sweep,
    "sweeps:sweep_add": lambda host: {
        "workload": "mnist_cnn", "preset": "tiny", "host": host, "placement": "cpu", "count": "2",
        "executor": "simulated",
    },
    "api:recommendations": lambda _: {"workload": "resnet50"},
    "api:recommendation_run": recommended_run,
    "recommend:recommend_run": lambda host: {
        name: json.dumps(value) if isinstance(value, dict) else value for name, value in recommended_run(host).items()
    },
    "sweeps:manifest": lambda host: {"text": MANIFEST, "host": host, "executor": "simulated", "make": "1"},
    "api:runs": asked_run,
    "api:deployment_tuning": lambda host: {"workload": "mnist_cnn", "host": host},
    "runs:run_from_file": lambda host: {"text": json.dumps(asked_run(host))},
    "runs:run_new": lambda host: {
        "workload": "mnist_cnn", "preset": "tiny", "host": host, "where": "cpu", "executor": "simulated",
    },
}  # fmt: skip
# Signed out is a session, whether the log is whole is found out by a worker, and planned anew on what is as it was
# is the same plan.
CHANGES_NO_ROW = {
    "accounts:sign_out",
    "accounts:confirmation",
    "accounts:session_end",
    "accounts:sessions_end",
    "accounts:person_sessions_end",
    "accounts:identity_provider_test",
    "accounts:audit_verification",
    "api:audit_verification",
    "fabric:plan_anew",
    "deploy:deploy",
    "api:deployments",
    "exports:export_preview",
    "exports:export_test",
    "api:export_preview",
    "api:export_try",
    "api:sweep_preview",
    "api:recommendations",
}
# What is a person's own, and by which field.
OWNED_BY = {
    "accounts.User": "id", "accounts.Token": "person_id", "history.Dashboard": "person_id",
    "history.DashboardPanel": "dashboard__person_id", "alerts.Route": "person_id",
    "events.SavedView": "person_id", "fabric.SavedFilter": "person_id", "runs.Run": "requested_by_id",
    "traces.ImportedTrace": "imported_by_id",
}  # fmt: skip
AUDIT = {"accounts.AuditEntry", "accounts.AuditHead"}
SESSIONS = {"accounts.BrowserSession"}  # tests/accounts/test_sessions.py sees who ends whose
READS = ("SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "PRAGMA", "EXPLAIN")
WRITTEN = re.compile(r'(?:INSERT(?: OR IGNORE)? INTO|UPDATE|DELETE FROM) "(\w+)"')


def action_of(route: tuple[str, str]) -> Action:
    """Return what is tried by a request, as the view declares it."""
    name, method = route
    return declaration_of(addresses()[name].callback, method).audited_as


# Every address with each of its methods that may change something.
ROUTES = [
    (name, method) for name, one in addresses().items() for method in WRITES if method in methods_of(one.callback)
]


@pytest.fixture
def bodies(lab: Lab) -> dict[str, dict[str, Any]]:
    """What one would send to take, break or free the owner's things: by the API and by pages, each with all fields."""
    ours = Dashboard.objects.create(pk=1, person=User.objects.get(username="owner"), name="Ours")
    ours.panels.create(pk=1, title="Ours", query="of=chassis/1")
    Token.objects.create(
        pk=1, person=User.objects.get(username="owner"), name="job", digest="0" * 64, expires_at=timezone.now()
    )
    strangers = Tenant.objects.get(name="Three").pk
    person = {"username": "somebody", "full_name": "Some Body", "email": "some@body.example", "role": "user"}
    both = {**person, "name": "falcon", "url": "https://127.0.0.1:2", "password": "one long word", "scope": "write",
            "days": 1, "take": True, "mode": "StandardOneHost", "dangers": [], "reason": "Not now."}  # fmt: skip
    things, ports = [lab.device.pk], [lab.host_port.pk]
    month = timezone.now() + timedelta(days=30)
    return {
        "api": {
            **both, "query": "of=chassis/1", "position": 1, "device_id": lab.device.pk, "target_host_port_id": None,
            "tenant_id": strangers,
            "device_ids": things, "host_port_ids": ports, "take_device_ids": things, "take_host_port_ids": ports,
            "format": "csv", "target": "download", "drift_ids": lab.arguments["drift"], "ends_at": month.isoformat(),
            "limits": [{"kind": "gpu", "most_at_once": 3}],
            "attachments": [{"device_id": lab.device.pk, "host_port_id": None}], "title": "Another",
        },
        "page": {
            **both, "query": "of=chassis/1", "device": lab.device.pk, "target": "", "tenant": strangers,
            "active": "on", "current": "x", "new": "another long word", "again": "another long word",
            "take_devices": things, "take_host_ports": ports,
            "text": json.dumps(FILE), "make": "1", "seen": ownership_revision(), "drift": lab.arguments["drift"],
            "format": "csv", "destination": "download", "columns": ["id"],
            "wanted": json.dumps({"attachments": {lab.device.pk: None}}),
            "devices": things, "change": f"{lab.device.pk}::{lab.device.host_port_id or ''}",
            "approve": "1", "title": "Another", "all": "1",
            "once_gpu": "3", "run": lab.arguments["run_cancel"], "ends_at": f"{month:%Y-%m-%dT%H:%M}",
        },
    }  # fmt: skip


def of_alerts(lab: Lab, name: str) -> dict[str, Any]:
    """Return what one would send to the addresses of alerts: some of their fields have names that others have too."""
    if not name.startswith(("alerts:", "api:alert")):
        return {}
    return {
        "alert": lab.arguments["alert"], "alert_ids": lab.arguments["alert"], "metric": "power_watts",
        "condition": "above", "value": 1, "clear_value": None if name.startswith("api:") else "", "hold_seconds": 5,
        "severity": "Critical", "scope": "all", "kind": "syslog", "address": "udp://127.0.0.1:9", "secret": "",
        "why": "Maintenance", "enabled": name != "alerts:built_in",
    }  # fmt: skip


@cache
def document() -> Any:
    """Return what the site says of its API, by addresses without the names of their numbers."""
    made: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made | {"paths": {re.sub(r"{\w+}", "{}", path): found for path, found in made["paths"].items()}}


def fields_of(route: str, method: str) -> set[str]:
    """Return the fields that a request of the API may have."""
    described = document()["paths"][re.sub(r"<[^>]+>", "{}", f"/{route}")][method.lower()]
    if "requestBody" not in described:
        return set()
    shape = described["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" not in shape:  # an allocation file
        return set()
    known = document()["components"]["schemas"][shape["$ref"].rpartition("/")[2]]["properties"]
    return {name for name, field in known.items() if not field.get("readOnly")}


def of_providers(name: str) -> dict[str, Any]:
    """Return what one would send to the addresses of identity providers."""
    return {
        "address": "https://127.0.0.1:1", "client_id": "another", "scopes": "openid", "username_claim": "sub",
        "groups_claim": "groups", "secret": "", "subject": "2", "username": "owner", "sample": "",
        "rules-TOTAL_FORMS": 1, "rules-INITIAL_FORMS": 0, "rules-0-group": "a", "rules-0-role": "administrator",
        "rules-0-ORDER": 1,
    } if name.startswith("accounts:identity_") else {}  # fmt: skip


def play(lab: Lab, who: str, route: tuple[str, str], body: dict[str, Any]) -> Any:
    """Send a request from a browser of its own: who signs out there is signed in elsewhere."""
    name, method = route
    if body:
        body = {**body, **of_alerts(lab, name), **of_providers(name)}
    if name == "deploy:deploy" and body:
        body = {"request": json.dumps(FILES["api:deployments"])}
    if name == "records:import" and body:
        body = {"text": json.dumps(OUTPUT), "make": "1"}
    if name in ASKS_FOR_A_RUN and body:
        body = ASKS_FOR_A_RUN[name](lab.host_port.host_id)
    file = (body if name in {"api:runs", "api:deployment_tuning"} else FILES.get(name)) if body else None
    client = Client()
    client.cookies = copy.deepcopy(lab.clients[who].cookies)
    where = reverse(name, args=lab.arguments.get(name.rpartition(":")[2], []))
    if name.startswith("api:"):
        # Of all the fields that there are, an address is sent those that it knows.
        known = set() if file else fields_of(resolve(where).route, method)
        fitting = file or {field: value for field, value in body.items() if field in known}
        return client.generic(method, where, json.dumps(fitting), content_type="application/json")
    form = urlencode(body, doseq=True)
    return client.generic(method, where, form, content_type="application/x-www-form-urlencoded")


@contextmanager
def written() -> Iterator[set[str]]:
    """Collect the names of tables that statements write to, so that only those need be read again."""
    tables: set[str] = set()

    def look(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if not sql.startswith(READS):
            named = WRITTEN.match(sql)
            assert named is not None, sql
            tables.add(named[1])
        return execute(sql, *rest)

    with ExitStack() as stack:
        for one in connections.all():
            stack.enter_context(one.execute_wrapper(look))
        yield tables


def rows(but: User | None, tables: Collection[str] | None = None) -> dict[str, list[Any]]:
    """Return all that there is in the lab, or in some of its tables, without what is a person's own."""
    found = {
        model._meta.label: list(
            model._default_manager.annotate(owned_by=F(OWNED_BY.get(model._meta.label, "pk"))).order_by("pk").values()
        )
        for model in apps.get_models()
        if model._meta.app_label not in RECORDS and model._meta.label not in AUDIT | SESSIONS
        if tables is None or model._meta.db_table in tables
    }
    if but is not None:
        for label in OWNED_BY.keys() & found.keys():
            found[label] = [one for one in found[label] if one["owned_by"] != but.pk]
    return found


def waits(person: User, device: Device) -> Operation:
    """Make an operation of a person that nobody has begun."""
    return Operation.objects.create(
        kind="mode", chassis=device.chassis, mode="Advanced", summary="Change the mode", requested_by=person,
        requested_by_name=person.username, tenant=person.tenant, requested_at=timezone.now() - timedelta(days=1),
    )  # fmt: skip


def latest() -> int:
    """Return the number of the newest entry of the audit log."""
    return AuditEntry.objects.latest("sequence").sequence


def see_the_record(since: int, who: str, route: tuple[str, str], answer: Any) -> None:
    """See that a request has left entries of who sent it, and no secret in them."""
    name, method = route
    left = list(AuditEntry.objects.filter(sequence__gt=since))
    person = User.objects.filter(username=who).first()
    assert left, (who, route)
    assert {entry.request_id for entry in left} == {answer[HEADER]}
    assert {(entry.via, entry.method, entry.path, entry.address) for entry in left} == {
        ("api" if name.startswith("api:") else "page", method, answer.wsgi_request.path, "127.0.0.1")
    }, (who, route)
    text = json.dumps([entry.record() for entry in left])
    assert SECRET not in text, (who, route)
    to_sign_in = answer.status_code == 302 and answer["Location"].startswith(reverse("accounts:sign_in"))
    refused = answer.status_code >= 400 or (to_sign_in and name not in {"accounts:sign_out", "accounts:access_end"})
    if refused or name == "accounts:sign_in":
        assert Outcome.DONE not in {entry.outcome for entry in left}, (who, route)
    if name != "accounts:sign_in":
        assert {entry.actor_id for entry in left} == {person.pk if person else None}, (who, route)
    assert all(entry.sentence for entry in left if entry.outcome != Outcome.DONE), (who, route)


def test_nobody_changes_what_is_not_theirs_and_each_try_is_on_record(
    lab: Lab, bodies: dict[str, dict[str, Any]], forget_refusals: Callable[[], None]
) -> None:
    assert {"accounts", "fabric", "api"} <= {name.partition(":")[0] for name, _ in ROUTES}
    people = {"member": User.objects.get(username="member"), "stranger": User.objects.get(username="stranger")}
    of_administrators = [one for one in ROUTES if audience_of(addresses()[one[0]]) is Audience.ADMINISTRATORS]
    for who in ("member", "stranger", "owner", "nobody"):
        before, of_others, since = rows(None), rows(people.get(who)), latest()
        # Whose things they are may change them, but by nothing that is for administrators.
        for place, route in enumerate(of_administrators if who == "owner" else ROUTES):
            if not place % 20:
                forget_refusals()  # only so many are kept one by one
            name = route[0]
            own = action_of(route) in OWN or (who == "stranger" and name in OF_USERS)
            body_of = bodies["api" if name.startswith("api:") else "page"]
            for body in (*at_night({}, body_of), {**body_of, **SECRETS}):
                with transaction.atomic():
                    with written() as tables:
                        answer = play(lab, who, route, body)
                    after = rows(people.get(who) if own else None, tables)
                    see_the_record(since, who, route, answer)
                    transaction.set_rollback(True)
                known = of_others if own else before
                assert {label: known[label] for label, there in after.items()} == after, (who, route, body)
                to_sign_in = answer.status_code == 302 and answer["Location"].startswith("/sign-in/")
                assert own or 400 <= answer.status_code < 500 or (who == "nobody" and to_sign_in), (who, route, body)
                assert answer.status_code < 500
                if who != "nobody" and audience_of(addresses()[name]) is Audience.ADMINISTRATORS:
                    assert answer.status_code == 403, (who, route, body)


@pytest.mark.nightly
def test_the_same_bodies_change_something_for_an_administrator(lab: Lab, bodies: dict[str, dict[str, Any]]) -> None:
    """So that a refusal is about who asks: a new route that needs other fields is to be given them above."""
    Device.objects.update(tenant=None)
    HostPort.objects.update(tenant=None)
    Device.objects.exclude(pk=lab.device.pk).update(host_port=None)
    Lease.objects.filter(tenant__name="Two").update(state="ended")
    # What is asked for is promised to nobody, and what is to be returned is something else.
    LeaseItem.objects.filter(lease__state="active", lease__tenant__name="One").update(
        device=Device.objects.exclude(pk=lab.device.pk).get(), host_port=None, taken_at=None
    )
    boss = User.objects.get(username="administrator")
    # The drafts were made on what was so before, and are nobody's as the things are.
    Plan.objects.update(tenant=None)
    for drafted in Plan.objects.filter(state="draft"):
        plan_change(person=boss, plan=drafted, desired=DesiredState.from_json(drafted.wanted))
    mine: list[object] = [Token.objects.create(person=boss, name="job", digest="1" * 64, expires_at=timezone.now()).pk]
    empty: list[object] = [Tenant.objects.create(name="Four").pk]
    bodies["page"]["seen"] = ownership_revision()
    board = Dashboard.objects.create(person=boss, name="mine")
    pinned: list[object] = [board.pk]
    lab.arguments |= dict.fromkeys(("my_dashboard", "dashboard", "dashboard_remove"), pinned)
    lab.arguments["dashboard_panel"] = [board.pk, board.panels.create(title="mine").pk]
    own = passkey_row(boss, "mine")
    TotpDevice.objects.create(person=boss, secret_encrypted="-", last_step=0)
    lab.arguments |= {name: [own.pk] for name in ("passkey", "passkey_remove")}
    lab.arguments["device_filter_remove"] = [SavedFilter.objects.create(person=boss, name="mine").pk]
    view: list[object] = [SavedView.objects.create(person=boss, name="mine").pk]
    lab.arguments |= dict.fromkeys(("my_event_view", "saved_change", "saved_remove"), view)
    program: list[object] = [User.objects.get(username="program").pk]
    lab.arguments |= {"my_token": mine, "person_tokens": program, "tenant": empty, "tenant_removal": empty}
    before, since = rows(None), latest()
    for route in ROUTES:
        if action_of(route) in REFUSED:
            continue
        with transaction.atomic():
            if route[0].endswith(":operation_cancel"):
                lab.arguments["operation_cancel"] = [waits(boss, lab.device).pk]
            with written() as tables:
                body = bodies["api" if route[0].startswith("api:") else "page"]
                answer = play(lab, "administrator", route, {**body, **SECRETS, "current": body.get("current")})
            assert answer.status_code < 400, (route, answer.status_code, answer.content)
            changed = any(before[label] != there for label, there in rows(None, tables).items())
            assert changed or route[0] in CHANGES_NO_ROW, route
            see_the_record(since, "administrator", route, answer)
            transaction.set_rollback(True)
