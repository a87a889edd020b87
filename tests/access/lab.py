"""Two tenants in one chassis, and one of everything that an address of the site may name."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import zstandard
from django.core.management import call_command
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from fido2.cose import CoseKey
from fido2.webauthn import AttestedCredentialData
from msgspec import to_builtins
from pytest_django import DjangoDbBlocker

from accounts.approvals.models import ApprovalRequest
from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.audit.services import audit_record, target_of
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider
from accounts.models import PersonKind, Role, Tenant, User
from accounts.second_factor.models import Passkey
from benchmarks.model.topology import Topology
from benchmarks.runs.models import Run
from benchmarks.runs.rules import Composition
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.traces.models import ImportedTrace
from benchmarks.workloads.catalogue import spec_of
from fabric.agents.models import HostAgent
from fabric.drift.models import Drift
from fabric.failures.models import Failure
from fabric.history.models import Attachment
from fabric.inventory.models import (
    Chassis,
    Device,
    Drawer,
    Host,
    HostPort,
    ManagedPart,
    Port,
    SavedFilter,
    Slot,
    Switch,
)
from fabric.leases.models import Lease, LeaseItem, Tenure
from fabric.maintenance.files import log_path
from fabric.maintenance.models import CollectedLog, FirmwareImage
from fabric.operations.models import Operation, Plan, Proof
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_create
from hostwire.protocol import HostReport, TrainerCapabilities
from hostwire.training import LATER_FIELDS
from telemetry.alerts.models import Alert, Delivery, Route, Rule, Silence
from telemetry.events.models import SavedView
from telemetry.events.services import event_record
from telemetry.exports.execution import run_continue
from telemetry.exports.models import ExportRun
from telemetry.exports.options import ExportSpec as WantedExport
from telemetry.exports.services import export_add, run_request

PEOPLE = ("administrator", "owner", "member", "stranger", "nobody")
SWEPT = ("running", "paused", "completed")


@dataclass
class Lab:
    """Rows of two tenants in one chassis."""

    clients: dict[str, Client]
    arguments: dict[str, list[object]]
    device: Device
    host_port: HostPort


def part(  # noqa: PLR0917 - one call, read in order
    chassis: Chassis, drawer: Drawer, switch: Switch, number: int, tenant: Tenant, word: str
) -> tuple[Device, HostPort]:
    """Make one slot with a device, attached to a host port of its own, granted to a tenant."""
    ports = [
        Port.objects.create(chassis=chassis, uri=f"/port/{kind}{number}", name=f"{kind}{number}", switch=switch)
        for kind in ("slot", "H")
    ]
    host = Host.objects.create(name=f"node-{word}", identity=word)
    host_port = HostPort.objects.create(
        chassis=chassis, uri=f"/zone/{number}", name=f"H{number}", endpoint_uri=f"/e/h{number}", drawer=drawer,
        port=ports[1], host=host, tenant=tenant, label=f"H{number}", number=number,
    )  # fmt: skip
    slot = Slot.objects.create(
        chassis=chassis, uri=f"/slot/{number}", name=f"slot {number}", drawer=drawer, port=ports[0], number=number
    )
    device = Device.objects.create(
        chassis=chassis, uri=f"/device/{number}", name=f"GPU {word}", serial_number=f"SN-{word.upper()}", slot=slot,
        host_port=host_port, tenant=tenant, kind="gpu", endpoint_uri=f"/e/{number}",
    )  # fmt: skip
    return device, host_port


def drifted(device: Device, approved: HostPort) -> Drift:
    """Let a device be elsewhere than approved, and have a history: both name the hosts of either tenant."""
    port = device.host_port
    assert port is not None
    Device.objects.filter(pk=device.pk).update(approved_host_port=approved, approved_at=timezone.now())
    Attachment.objects.create(
        chassis=device.chassis, device=device, slot=device.slot, host_port=approved, tenant=device.tenant,
        device_name=device.name, host_port_label=approved.label, host_name=str(approved.host),
        since=timezone.now(), until=timezone.now(), origin="outside", ending="outside",
    )  # fmt: skip
    return Drift.objects.create(
        chassis=device.chassis, kind="attachment", uri=device.uri, device=device, what=device.name,
        noticed_at=timezone.now(), expected=str(approved.pk), expected_words=f"{approved.host} ({approved.label})",
        found=str(port.pk), found_words=f"{port.host} ({port.label})",
    )  # fmt: skip


def happened(*devices: Device) -> int:
    """Let something happen to devices of each tenant; return the number of the first one's event."""
    made = [
        event_record(
            source="bmc", message_id="Fabric.1.0.PortDown", severity="Critical", text=f"{device.name} is gone.",
            at=timezone.now(), chassis_id=device.chassis_id, device_id=device.pk, person_name=device.serial_number,
        )
        for device in devices
    ]  # fmt: skip
    assert made[0] is not None
    return made[0].pk


def leased(tenant: Tenant, *things: Device | HostPort) -> Lease:
    """Make an active lease of these things that is asked to be longer, or, without any, a request for one."""
    now = timezone.now()
    lease = Lease.objects.create(
        tenant=tenant, tenant_name=tenant.name, state="active" if things else "requested", starts_at=now,
        ends_at=now + timedelta(days=3), extension_to=now + timedelta(days=9) if things else None,
        asked_by_name="owner", wishes=[{"kind": "gpu", "count": 1, "chassis": None}],
    )  # fmt: skip
    for one in things:
        about = {"device": one} if isinstance(one, Device) else {"host_port": one}
        LeaseItem.objects.create(lease=lease, kind="gpu", name=one.name, taken_at=now, **about)
        Tenure.objects.create(tenant=tenant, tenant_name=tenant.name, kind="gpu", name=one.name, began_at=now, **about)
    return lease


def recorded(*tenants: Tenant) -> dict[str, list[object]]:
    """Let each tenant have a run that has ended; return the first one's id for the addresses of records."""
    words = ("owned", "other")
    runs = [
        Run.objects.create(
            title=f"A run on node-{word}", state="completed", workload="resnet50", provenance="measured",
            requested_by_name=word, tenant=tenant,
        )
        for word, tenant in zip(words, tenants, strict=True)
    ]  # fmt: skip
    return {name: [runs[0].pk] for name in ("run_jsonl", "run_csv")}


def benchmarked(tenant: Tenant, drafted: Plan, device: Device, host_port: HostPort) -> dict[str, list[object]]:
    """Make runs in each state that an address is for, on a host whose agent can run some, and return their ids."""
    host = host_port.host
    assert host is not None
    trainer = TrainerCapabilities(executors=("simulated",), spec_fields=tuple(LATER_FIELDS))
    report = HostReport(host=host.identity, number=1, started=1.0, sent=1.0, version="1", trainer=trainer)
    HostAgent.objects.create(
        host=host, digest="f" * 32, key_encrypted="-", reported_at=timezone.now() + timedelta(hours=1),
        report=to_builtins(report),
    )  # fmt: skip
    composition = Composition(host=host.pk, cpu=True)
    spec = spec_of("mnist_cnn", "tiny", {})
    words = {
        "workload": "mnist_cnn", "provenance": "simulated", "executor": "simulated", "requested_by_name": "owner",
        "spec": to_builtins(spec), "spec_hash": spec.hash, "composition": composition.as_json(), "host": host,
    }  # fmt: skip
    topology = to_builtins(Topology(name="Done"))
    done = Run.objects.create(title="Done", state="completed", tenant=tenant, topology=topology, **words)
    queued = Run.objects.create(title="Queued", state="queued", tenant=tenant, **words)
    brought = ended(drafted, device, "done")
    brought.wanted = DesiredState(attachments={device.pk: host_port.pk}).as_json()
    brought.base = {**drafted.base, "attachments": {str(device.pk): None}}
    brought.save()
    owing = Run.objects.create(title="Owing", state="completed", plan=brought, **words)
    made: dict[str, list[object]] = {
        name: [done.pk]
        for name in ("run", "run_log", "run_series", "run_infragraph", "run_retry", "run_resume", "run_delete")
    }
    made |= {"run_cancel": [queued.pk], "run_return": [owing.pk]}
    return made


def swept(host: Host, other: Host, *tenants: Tenant) -> dict[str, list[object]]:
    """Let each tenant have a sweep that goes on, and the first one others in further states; return their ids."""
    found: list[Sweep] = []
    for state, place, tenant in (("running", other, tenants[1]), *((one, host, tenants[0]) for one in SWEPT)):
        sweep = Sweep.objects.create(
            title=f"Sweep of {place.name}", state=state, requested_by_name="owner", tenant=tenant,
            grid={"workload": ["resnet50"], "host": [place.pk], "batch": [8, 16]},
        )  # fmt: skip
        for position in (0, 1):
            Point.objects.create(
                sweep=sweep, position=position, values={"host": place.pk, "placement": "local", "batch": 8},
                composition={"host": place.pk, "local_gpus": 1}, state="skipped" if position else "waiting",
                attempts=position,
            )  # fmt: skip
        found.append(sweep)
    ids: list[list[object]] = [[one.pk] for one in found[1:]]
    running, paused, ended = ids
    arguments = dict.fromkeys(("points_csv", "sweep_points", "pause", "halt", "retry"), running)
    arguments |= dict.fromkeys(("sweep_pause", "sweep_halt", "sweep_retry"), running)
    arguments |= dict.fromkeys(("resume", "sweep_resume"), paused)
    arguments |= dict.fromkeys(("sweep", "delete"), ended)
    return arguments


def traced(tenant: Tenant) -> dict[str, list[object]]:
    """Let a tenant have a trace of one node."""
    content = zstandard.compress(b'{"id": 1, "type": "COMP_NODE", "durationMicros": 1000}')
    trace = ImportedTrace.objects.create(
        title="Traced", sha256="0" * 64, size=54, content=content, compute_seconds=0.001, imported_by_name="owner",
        tenant=tenant,
    )  # fmt: skip
    return {name: [trace.pk] for name in ("trace", "trace_delete", "trace_play")}


def planned(person: User, device: Device) -> Plan:
    """Make the draft of a plan that detaches a device."""
    return plan_create(
        person=person, desired=DesiredState(attachments={device.pk: None}), title="Free it", origin="api"
    )


def ended(drafted: Plan, device: Device, state: str) -> Plan:
    """Make a plan as a drafted one, applied and come to this state by an operation on a device."""
    plan, now = Plan.objects.get(pk=drafted.pk), timezone.now()
    plan.pk, plan.state, plan.applied_at = uuid.uuid4(), state, now
    plan.save(force_insert=True)
    Operation.objects.create(
        kind="detach", state="done", chassis=device.chassis, device=device, plan=plan, position=1, attempts=1,
        finished_at=now, requested_by_name="owner",
    )  # fmt: skip
    return plan


def exported(by: User) -> dict[str, list[object]]:
    """Make exports and runs of them in each state that an address is for: with a file, to cancel, to resume, none."""
    done, going, failed, idle = (
        export_add(by=by, spec=WantedExport(name, format="csv", target="download")) for name in ("a", "b", "c", "d")
    )
    runs = [run_request(by=by, definition=one) for one in (done, going, failed)]
    assert not run_continue(runs[0].pk, worker="lab")
    ExportRun.objects.filter(pk=runs[2].pk).update(state="failed", ended_at=timezone.now())
    found: dict[str, list[object]] = {
        name: [idle.pk] for name in (
            "export", "export_edit", "export_remove", "export_switch", "export_start", "export_try",
        )
    }  # fmt: skip
    found |= {name: [runs[0].pk] for name in ("export_run", "export_run_file")}
    return found | {"export_run_cancel": [runs[1].pk], "export_run_resume": [runs[2].pk]}


def asked_of_two(person: User) -> dict[str, list[object]]:
    """Let a person wait for the approval of an administrator."""
    now = timezone.now()
    row = ApprovalRequest.objects.create(
        dangers=["force"], sentence="Detach GPU owned, by force.", service="operation_request", parameters={}, facts={},
        requested_by=person, requested_by_name=person.username, requested_at=now, expires_at=now + timedelta(hours=1),
    )  # fmt: skip
    names = ("approval", "approval_decision", "approval_approve", "approval_refuse", "approval_withdraw")
    return {name: [row.pk] for name in names}


def rung(*devices: Device) -> dict[str, list[object]]:
    """Let an alert fire of each device, and make a rule, a silence, and a route with a delivery that waits."""
    now = timezone.now()
    alerts = [
        Alert.objects.create(
            chassis=device.chassis, cause="sensor_critical:upper", series_key=f"device/{device.pk}/x", title="Too hot",
            severity="Critical", rank=2, state="firing", object="device", subject_name=device.name, device=device,
            threshold=device.serial_number, since=now, fired_at=now,
        )
        for device in devices
    ]  # fmt: skip
    rule = Rule.objects.create(name="Hot", metric="temperature_celsius", condition="above", value=80)
    silence = Silence.objects.create(ends_at=now + timedelta(hours=1), made_by_name="administrator", why="Fans")
    route = Route.objects.create(name="Hook", kind="webhook", address="https://hook.example/")
    delivery = Delivery.objects.create(route=route, number=1, summary="Too hot", content={"kind": "test"})
    made: dict[str, list[object]] = {"alert": [alerts[0].pk]}
    made |= {name: [rule.pk] for name in ("rule", "rule_switch", "rule_remove", "alert_rule")}
    made |= {name: ["fan_failed"] for name in ("built_in", "alert_built_in")}
    made |= {name: [silence.pk] for name in ("silence_end", "alert_silence_end")}
    routes = ("route", "route_remove", "route_test", "alert_route", "alert_route_test")
    made |= {name: [route.pk] for name in routes}
    return made | {name: [delivery.pk] for name in ("delivery_retry", "alert_delivery_retry")}


def passkey_row(person: User, name: str) -> Passkey:
    """Make the row of a passkey that no device keeps."""
    public = CoseKey({1: 2, 3: -7, -1: 1, -2: b"x" * 32, -3: b"y" * 32})
    key = AttestedCredentialData.create(b"0" * 16, name.encode(), public)
    return Passkey.objects.create(
        person=person, name=name, credential_id=name, credential=bytes(key), user_handle=b"-", sign_count=0,
        is_backed_up=False,
    )  # fmt: skip


def make_lab() -> Lab:
    """Make an owner and a member (viewer) of one tenant, and a stranger of another that holds nothing here."""
    tenant, others, strangers = (Tenant.objects.create(name=name) for name in ("One", "Two", "Three"))
    people = {
        "administrator": User.objects.create_superuser("administrator", password="x"),
        "owner": User.objects.create_user("owner", password="x", role=Role.USER, tenant=tenant),
        "member": User.objects.create_user("member", password="x", role=Role.VIEWER, tenant=tenant),
        "stranger": User.objects.create_user("stranger", password="x", role=Role.USER, tenant=strangers),
    }
    chassis = Chassis.objects.create(
        name="falcon", url="https://127.0.0.1:1", dialect="zone_patch", last_error="secret host"
    )
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1, mode="Advanced")
    switch = Switch.objects.create(chassis=chassis, uri="/s", name="Switch", drawer=drawer)
    device, host_port = part(chassis, drawer, switch, 1, tenant, "owned")
    other, elsewhere = part(chassis, drawer, switch, 2, others, "other")
    drift = drifted(device, elsewhere)
    drifted(other, host_port)
    operation = Operation.objects.create(
        kind="detach",
        state="done",
        chassis=chassis,
        device=device,
        summary="Detach GPU owned",
        requested_by_name="owner",
    )
    clients = {name: Client() for name in PEOPLE}
    for name, person in people.items():
        clients[name].force_login(person)
    arguments: dict[str, list[object]] = {
        "chassis": [chassis.pk], "series": [chassis.pk], "readings": [chassis.pk], "device": [device.pk],
        "host": [host_port.host_id], "host_infragraph": [host_port.host_id], "operation": [operation.pk],
        "port": [device.slot.port_id if device.slot else 0], "drawer": [drawer.pk], "slot": [device.slot_id],
    }  # fmt: skip
    arguments |= {
        name: [chassis.pk]
        for name in (
            "chassis_dialect",
            "dialect_trial",
            "chassis_edit",
            "chassis_limits",
            "chassis_locate",
            "chassis_remove",
            "chassis_settings",
            "chassis_sign_in",
        )
    }
    failure = Failure.objects.create(
        chassis=chassis, device=device, host_port=host_port, tenant=tenant, cause="link", device_name=device.name,
        host_name=str(host_port.host), noticed_at=timezone.now(),
    )  # fmt: skip
    arguments |= {name: [failure.pk] for name in ("failure", "failure_keep", "failure_replace")}
    bmc = ManagedPart.objects.create(chassis=chassis, uri="/m", name="BMC of falcon", kind="bmc", version="1")
    arguments |= {
        name: [bmc.pk]
        for name in ("managed_part", "firmware_drain", "firmware_update", "part_led", "part_locate", "part_reset")
    }
    image = FirmwareImage.objects.create(name="bmc.bin", size=1, uploaded_by_name="administrator")
    log = CollectedLog.objects.create(managed_part=bmc, name="a.jsonl", size=1, collected_by_name="administrator")
    log_path(log.pk).parent.mkdir(parents=True, exist_ok=True)
    log_path(log.pk).write_bytes(b"{")
    arguments |= {name: [log.pk] for name in ("collected_log", "collected_log_file", "collected_log_remove")}
    arguments |= {"firmware_image_remove": [image.pk], "logs_collect": [bmc.pk]}
    arguments |= {name: [people["owner"].pk] for name in ("person", "person_password", "person_second_factor")}
    passkey = passkey_row(people["owner"], "laptop")
    arguments |= {name: [passkey.pk] for name in ("passkey", "passkey_remove")}
    arguments |= {name: [tenant.pk] for name in ("tenant", "tenant_grants", "tenant_removal")}
    program = User.objects.create(
        username="program", password="!", kind=PersonKind.SERVICE, role=Role.VIEWER, tenant=tenant
    )
    arguments |= {"service_token_add": [program.pk], "person_sessions_end": [people["owner"].pk]}
    arguments |= {"session_end": [people["owner"].sessions.get().number], "password_new": ["MQ", "a-made-up-one"]}
    arguments |= {name: [1] for name in ("token_revoke", "my_token")}
    arguments |= {name: [1] for name in ("my_dashboard", "dashboard", "dashboard_remove")}
    arguments |= {"dashboard_panel": [1, 1]}
    # Of an operation, so that a tenant could find its own name in it.
    audit_record(action=Action.OPERATION_REQUEST, actor=people["owner"], target=target_of(device))
    arguments |= {"audit_entry": [AuditEntry.objects.latest("sequence").pk]}
    arguments |= {name: [device.slot_id] for name in ("slot_history", "slot_history_csv")}
    arguments |= {name: [device.pk] for name in ("device_history", "device_history_csv")}
    provider = IdentityProvider.objects.create(
        kind="oidc", name="Company", enabled=True, address="https://127.0.0.1:1", client_id="falconweb"
    )
    identity = ExternalIdentity.objects.create(
        provider=provider, subject="1", person=User.objects.create_user("linked", role=Role.USER, tenant=tenant)
    )
    arguments |= {f"identity_provider{name}": [provider.pk] for name in ("", "_rules", "_test", "_remove")}
    arguments |= {name: [provider.pk] for name in ("provider_start", "provider_callback", "identity_link")}
    arguments |= {"identity_unlink": [identity.pk], "drift": [drift.pk]}
    arguments |= exported(people["administrator"])
    arguments |= {"event": [happened(device, other)]}
    saved = SavedFilter.objects.create(person=people["administrator"], name="Of the administrator").pk
    arguments["device_filter_remove"] = [saved]
    view = SavedView.objects.create(person=people["administrator"], name="Of the administrator").pk
    arguments |= {name: [view] for name in ("my_event_view", "saved_change", "saved_remove")}
    link: list[object] = [device.slot.port_id if device.slot else 0]
    arguments |= dict.fromkeys(("link", "states_csv", "counter_reset", "link_states", "link_counter_reset"), link)
    arguments |= {name: ["resources"] for name in ("figure", "figure_csv")}
    arguments |= {name: ["figure-11"] for name in ("experiment_figure", "experiment_csv")}
    arguments |= {"play": ["simulated"]}
    arguments |= {"switch": [switch.pk], "host_port": [host_port.pk], "drawer_mode": [drawer.pk]}
    arguments |= {"device_tenant": [device.pk], "host_port_tenant": [host_port.pk]}
    arguments |= {"person_tokens": [people["owner"].pk], "person_token": [people["owner"].pk, 1]}
    Proof.objects.create(operation=operation, sentence="Nobody else was touched.", untouched=True)
    arguments |= {"operation_proof": [operation.pk]}
    arguments |= {"operation_cancel": [operation.pk], "host_agent": [host_port.host_id]}
    drafted = planned(people["owner"], device)
    arguments |= {f"plan_{name}": [drafted.pk] for name in ("title", "anew", "discard")}
    arguments |= {"plan": [drafted.pk], "plan_apply": [drafted.pk], "plan_undo": [ended(drafted, device, "done").pk]}
    arguments |= {name: [ended(drafted, device, "stopped").pk] for name in ("plan_cancel", "plan_resume")}
    held, asked = leased(tenant, device, host_port), leased(tenant)
    leased(others, other, elsewhere)
    arguments |= {f"lease{name}": [held.pk] for name in ("", "_extension", "_extension_decline", "_return")}
    arguments |= {f"lease_{name}": [asked.pk] for name in ("decision", "approval", "decline", "withdrawal")}
    arguments |= {name: [tenant.pk] for name in ("quotas", "tenant_quotas")}
    arguments |= asked_of_two(people["owner"])
    arguments |= rung(device, other)
    arguments |= recorded(tenant, others)
    arguments |= swept(Host.objects.get(identity="owned"), Host.objects.get(identity="other"), tenant, others)
    arguments |= traced(tenant)
    arguments |= benchmarked(tenant, drafted, device, host_port)
    return Lab(clients, arguments, device, host_port)


@pytest.fixture(scope="module")
def made_lab(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Lab]:
    """The lab, made once for all tests of a module."""
    with django_db_blocker.unblock():
        made = make_lab()
    yield made
    with django_db_blocker.unblock():
        for alias in connections:
            call_command("flush", database=alias, interactive=False, verbosity=0)


@pytest.fixture
def lab(made_lab: Lab, db: None) -> Lab:
    """The lab as it was made, with browsers of its own; what a test changes is rolled back after it."""
    if not Device.objects.filter(pk=made_lab.device.pk).exists():
        return make_lab()  # a test with real transactions came before, and emptied all tables
    clients = {name: Client() for name in made_lab.clients}
    for name, client in clients.items():
        client.cookies = copy.deepcopy(made_lab.clients[name].cookies)
    arguments = {name: list(those) for name, those in made_lab.arguments.items()}
    device = Device.objects.select_related("slot").get(pk=made_lab.device.pk)
    return Lab(clients, arguments, device, HostPort.objects.get(pk=made_lab.host_port.pk))


def address(lab: Lab, name: str) -> str:
    return reverse(name, args=lab.arguments.get(name.rsplit(":", maxsplit=1)[-1], []))
