"""Four people and nobody, against every address that the routers know, and what it declares of who is answered."""

from __future__ import annotations

import inspect
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts.declaration import NO_PAGE, Audience
from accounts.models import Tenant
from accounts.permissions import IsAdministrator
from core.downloads import Download
from fabric.inventory.models import Device
from fabric.leases.models import Lease, LeaseItem
from falconweb.csp_reports import PATH
from falconweb.middleware import ISOLATION_HEADERS
from falconweb.navigation import Address, addresses
from telemetry.live.consumers import websocket_urlpatterns
from tests.access.lab import PEOPLE, Lab, address, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db

# What GET answers to an administrator, an owner, a viewer of the owner's tenant and a stranger, by who is answered.
STATUSES: dict[Audience, tuple[int, ...]] = {
    Audience.PUBLIC: (200, 200, 200, 200),
    Audience.EVERYBODY: (200, 200, 200, 200),
    Audience.OBJECT_VIEWERS: (200, 200, 200, 404),
    Audience.COMPOSERS: (200, 200, 403, 200),
    Audience.ADMINISTRATORS: (200, 403, 403, 403),
}
# What else they and nobody get: from what leads on, does nothing without parameters, or is somebody's own.
EXCEPTIONS = {
    "accounts:sign_in": (302, 302, 302, 302, 200),
    "accounts:approval": (200, 200, 404, 404, 302),
    "api:approval": (200, 200, 404, 404, 401),
    "accounts:password_forgotten": (404, 404, 404, 404, 404),
    "accounts:password_new": (400, 400, 400, 400, 400),
    "accounts:second_factor": (302, 302, 302, 302, 302),
    "accounts:passkey": (404, 200, 404, 404, 302),
    "accounts:provider_start": (302, 302, 302, 302, 302),
    "accounts:provider_callback": (302, 302, 302, 302, 302),
    "fabric:compose": (400, 400, 403, 400, 302),
    "fabric:lease_request": (302, 200, 200, 200, 302),
    "history:throughput_csv": (200, 200, 200, 404, 302),
    "recommend:recommend_csv": (400, 400, 400, 400, 302),
    "api:figure": (200, 200, 200, 200, 401),
    "api:experiment_figure": (200, 200, 200, 200, 401),
    "api:my_token": (404, 404, 404, 404, 401),
    "api:my_dashboard": (404, 404, 404, 404, 401),
    "history:dashboard": (404, 404, 404, 404, 302),
    "api:my_event_view": (200, 404, 404, 404, 401),
    "api:alert_rule_preview": (400, 403, 403, 403, 401),
    "api:telemetry": (400, 400, 400, 400, 401),
    "api:telemetry_table": (400, 400, 400, 400, 401),
    "api:telemetry_raw": (400, 400, 400, 400, 401),
    "api:telemetry_heat_map": (400, 400, 400, 400, 401),
    "api:telemetry_throughput": (400, 400, 400, 400, 401),
    "api:comparison": (400, 400, 400, 400, 401),
    "api:nothing": (404, 404, 404, 404, 401),
}
# What is not for everybody who is signed in, said a second time: a mistake in a declaration does not change it here.
RESTRICTED = {
    Audience.PUBLIC: """
        accounts:password_forgotten accounts:password_new accounts:provider_callback accounts:provider_start
        accounts:second_factor accounts:sign_in accounts:sign_in_passkey texts
    """,
    Audience.COMPOSERS: """
        experiment:play
        fabric:compose fabric:failure_policy runs:run_from_file runs:run_new runs:runs_cancel sweeps:count
        sweeps:manifest sweeps:sweep_add
    """,
    Audience.ADMINISTRATORS: """
        accounts:approval_policy accounts:approvals
        accounts:audit accounts:audit_entry accounts:audit_export accounts:audit_verification accounts:identity_link
        accounts:identity_provider accounts:identity_provider_add accounts:identity_provider_remove
        accounts:identity_provider_rules accounts:identity_provider_test accounts:identity_providers
        accounts:identity_unlink accounts:people api:identity_provider api:identity_providers
        accounts:person accounts:person_add accounts:person_password accounts:person_second_factor
        accounts:person_sessions_end accounts:service_add accounts:service_token_add accounts:tenant_add
        accounts:tenants accounts:tokens accounts:tokens_csv
        alerts:built_in alerts:deliveries alerts:delivery_retry alerts:route alerts:route_add alerts:route_remove
        alerts:route_test alerts:routes alerts:rule alerts:rule_add alerts:rule_metrics alerts:rule_preview
        alerts:rule_remove alerts:rule_switch alerts:rules alerts:silence_add alerts:silence_end alerts:silences
        api:alert_built_in api:alert_built_ins api:alert_deliveries api:alert_delivery_retry api:alert_route
        api:alert_route_test api:alert_routes api:alert_rule api:alert_rule_preview api:alert_rules
        api:alert_silence_end api:alert_silences api:approval_policy
        api:audit api:audit_entry api:audit_export api:audit_verification api:chassis_dialect api:chassis_settings
        api:export api:export_preview api:export_run api:export_run_cancel api:export_run_file api:export_run_resume
        api:export_runs api:export_start api:export_try api:exports api:lease_approval api:lease_decline
        api:lease_extension_decline api:leases_given api:operation_proof api:people api:person api:person_password
        api:person_token api:person_tokens api:pipeline api:service_accounts api:tenant api:tenant_grants
        api:tenant_quotas api:tenants api:tokens
        exports:export exports:export_add exports:export_edit exports:export_preview exports:export_remove
        exports:export_run exports:export_run_cancel exports:export_run_file exports:export_run_resume
        exports:export_runs exports:export_runs_csv exports:export_start exports:export_switch exports:export_test
        api:collected_log_file api:collected_logs api:logs_collect fabric:collected_log fabric:collected_log_remove
        fabric:logs_collect
        api:firmware_drain api:firmware_images api:firmware_update api:managed_part api:managed_parts api:part_led
        api:part_reset
        exports:exports exports:exports_csv fabric:chassis_add fabric:chassis_dialect fabric:chassis_edit
        fabric:dialect_trial fabric:chassis_locate fabric:chassis_remove fabric:chassis_sign_in
        fabric:firmware_drain fabric:firmware_image_remove fabric:firmware_images fabric:managed_part fabric:part_locate
        fabric:maintenance fabric:maintenance_csv
        fabric:devices_assign fabric:lease_decision fabric:lease_extension_decline
        fabric:lease_give fabric:quotas
        fabric:system fabric:tenant fabric:tenant_grants fabric:tenant_removal pipeline:chassis_csv pipeline:counts_csv
        pipeline:pipeline
    """,
}
# What every page and endpoint has, whoever asks.
HEADERS = {
    **ISOLATION_HEADERS,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
POLICY = ("default-src 'none'", f"report-uri {PATH}", "report-to csp")
SOCKETS = {"ws/live/"}
OTHERS = ("SN-OTHER", "GPU other", "node-other", "secret host")
HIDDEN = {"owner": OTHERS, "member": OTHERS} | dict.fromkeys(
    ("stranger", "nobody"), ("SN-OWNED", "GPU owned", "node-owned", *OTHERS)
)


def wrong_headers(answer: Any) -> list[str]:
    """Return which headers an answer lacks, or has with another value."""
    wrong = [header for header, value in HEADERS.items() if answer.headers.get(header) != value]
    policy = answer.headers.get("Content-Security-Policy", "")
    return wrong + [words for words in POLICY if words not in policy]


def methods_of(callback: Any) -> set[str]:
    """Return the methods that a view takes: of a class its own, of a function what its decorator says, else all."""
    if actions := getattr(callback, "actions", None):
        return {one.upper() for one in actions}
    view = getattr(callback, "view_class", None)
    if view is not None:
        return {one.upper() for one in view.http_method_names if hasattr(view, one)}
    while callback is not None:
        listed = inspect.getclosurevars(callback).nonlocals.get("request_method_list")
        if listed is not None:
            return set(listed)
        callback = getattr(callback, "__wrapped__", None)
    return {"GET", "POST", "PUT", "PATCH", "DELETE"}


def audience_of(where: Address) -> Audience | None:
    """Return who is answered: as declared, else what permissions and address of an endpoint come to; None if unsaid."""
    declared = where.declaration.audience
    if declared is not None or where.is_page:
        return declared
    view = where.callback
    if IsAdministrator in view.initkwargs.get("permission_classes", view.cls.permission_classes):
        return Audience.ADMINISTRATORS
    return Audience.OBJECT_VIEWERS if "<" in where.route else Audience.EVERYBODY


def expected_statuses(where: Address, audience: Audience) -> tuple[int, ...]:
    """Return what each of PEOPLE gets from GET."""
    statuses = STATUSES[audience]
    if "GET" not in methods_of(where.callback):
        # Of an endpoint, permissions are looked at before the method is.
        statuses = tuple(403 if one == 403 and not where.is_page else 405 for one in statuses)
    signed_out = 302 if where.is_page else 401
    return (*statuses, 200 if audience is Audience.PUBLIC else signed_out)


GETS = {
    name: EXCEPTIONS.get(name, expected_statuses(where, audience))
    for name, where in addresses().items()
    if (audience := audience_of(where)) is not None
}


def test_every_page_declares_who_is_answered() -> None:
    assert sorted(set(addresses()) - set(GETS)) == [], (
        "Write '@declare(Audience.EVERYBODY)', or who else is answered, right above the def of each: "
        "from accounts.declaration import Audience, declare"
    )
    assert set(EXCEPTIONS) <= set(GETS)


@pytest.mark.parametrize("audience", RESTRICTED)
def test_what_is_not_for_everybody_is_declared_so(audience: Audience) -> None:
    declared = {name for name, where in addresses().items() if audience_of(where) is audience}
    assert declared == set(RESTRICTED[audience].split()), (
        "If the declaration is right, and not this list, write it in RESTRICTED too"
    )


def test_there_is_one_address_of_websockets() -> None:
    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == SOCKETS


@pytest.mark.parametrize("space", sorted({name.partition(":")[0] for name in GETS}))
def test_each_person_gets_what_is_declared_and_nothing_that_is_not_granted_to_them(lab: Lab, space: str) -> None:
    for name in (one for one in GETS if one.partition(":")[0] == space):
        where = addresses()[name]
        answers: dict[str, Any] = {person: lab.clients[person].get(address(lab, name)) for person in PEOPLE}
        assert tuple(answers[person].status_code for person in PEOPLE) == GETS[name], (
            f"{name}: is {audience_of(where)} who is answered? If not, declare another audience where the view is"
        )
        assert {person: wrong for person in PEOPLE if (wrong := wrong_headers(answers[person]))} == {}, name
        # What Django streams by itself is first made as a whole: a day of readings is gigabytes.
        streamed = [one for one in answers.values() if one.streaming and not one.is_async]
        assert all(isinstance(one, Download) for one in streamed), name
        texts = {who: page_text(one) for who, one in answers.items()}
        for person, hidden in HIDDEN.items():
            assert not [word for word in hidden if word in texts[person]], (name, person)
        if not where.is_page:
            continue
        if GETS[name][0] == 405:
            # An address that only takes forms says so on a page.
            assert "POST" in answers["administrator"]["Allow"]
            assert "Nothing was changed." in texts["administrator"], name
            assert '<nav aria-label="Main"' in texts["administrator"], name
        elif GETS[name][0] == 200:
            assert ("<html" in texts["administrator"]) == (where.declaration.no_page_test != NO_PAGE), (
                f"{name}: declare no_page_test=NO_PAGE where, and only where, the answer is no whole page"
            )


def test_others_slots_are_shown_as_in_use(lab: Lab) -> None:
    answer = lab.clients["owner"].get(reverse("api:chassis_list")).json()
    slots = answer[0]["drawers"][0]["slots"]
    assert [slot["state"] for slot in slots] == ["occupied", "in_use"]
    assert slots[1] == {"id": None, "number": 2, "state": "in_use", "device": None}
    assert "in use" in lab.clients["owner"].get(reverse("fabric:fabric")).content.decode()


def shown_of_slot_2(lab: Lab, person: str) -> dict[str, object]:
    """Return what the API tells a person of the slot that is not the owner's, the same by each of its answers."""
    client = lab.clients[person]
    (chassis,) = client.get(reverse("api:chassis_list")).json()
    slot: dict[str, object] = chassis["drawers"][0]["slots"][1]
    assert client.get(address(lab, "api:chassis")).json()["drawers"][0]["slots"][1] == slot
    assert client.get(address(lab, "api:drawer")).json()["slots"][1] == slot
    return slot


@pytest.mark.parametrize("person", ["owner", "member"])
def test_what_nobody_holds_is_shown_to_tenants_as_unassigned_and_nothing_else_of_it(lab: Lab, person: str) -> None:
    """The slot is attached to a host of others still: that is not told."""
    other = Device.objects.get(name="GPU other")
    Device.objects.filter(pk=other.pk).update(tenant=None)
    LeaseItem.objects.filter(device=other).update(released_at=timezone.now())
    assert shown_of_slot_2(lab, person) == {"id": None, "number": 2, "state": "in_pool", "device": None}
    for name in ("fabric:fabric", "fabric:chassis", "fabric:drawer"):
        text = page_text(lab.clients[person].get(address(lab, name)))
        assert 'aria-label="Drawer 1 slot 2, unassigned: you may request it"' in text
        assert not [word for word in ("SN-OTHER", "GPU other", "node-other") if word in text]
    listed = page_text(lab.clients[person].get(reverse("fabric:fabric"), {"view": "list"}))
    assert '<td colspan="8" class="faint"> unassigned </td>' in listed
    assert "node-other" not in listed
    assert lab.clients[person].get(reverse("api:slots")).json()["count"] == 1
    # The calendar says the same of it, now.
    calendar = page_text(lab.clients[person].get(reverse("fabric:lease_calendar")))
    assert "Slot 2" in calendar
    # Who sees everything sees the device, and has no use for the word.
    text = page_text(lab.clients["administrator"].get(reverse("fabric:fabric")))
    assert "GPU other" in text
    assert "slot 2, unassigned" not in text
    assert lab.clients["stranger"].get(reverse("api:chassis_list")).json() == []


def test_what_is_promised_from_now_on_or_is_not_there_is_not_in_the_pool(lab: Lab) -> None:
    """A free device that a lease which has begun is about: the calendar says 'in use'. Later ones do not count yet."""
    other = Device.objects.get(name="GPU other")
    Device.objects.filter(pk=other.pk).update(tenant=None)
    assert shown_of_slot_2(lab, "owner")["state"] == "in_use"
    Lease.objects.filter(items__device=other).update(
        starts_at=timezone.now() + timedelta(days=1), ends_at=timezone.now() + timedelta(days=2), state="approved"
    )
    assert shown_of_slot_2(lab, "owner")["state"] == "in_pool"
    Device.objects.filter(pk=other.pk).update(missing_since=timezone.now())
    assert shown_of_slot_2(lab, "owner") == {"id": None, "number": 2, "state": "empty", "device": None}
    Device.objects.filter(pk=other.pk).update(tenant=Tenant.objects.get(name="Two"))
    assert shown_of_slot_2(lab, "owner")["state"] == "in_use"


@pytest.mark.parametrize(
    ("person", "status"), [("administrator", 202), ("owner", 202), ("member", 403), ("stranger", 404), ("nobody", 401)]
)
def test_who_may_detach(lab: Lab, person: str, status: int) -> None:
    answer = lab.clients[person].post(
        reverse("api:operations"),
        {"device_id": lab.device.pk, "target_host_port_id": None},
        content_type="application/json",
    )
    assert answer.status_code == status
    if status == 202:
        assert answer["Location"].endswith(reverse("api:operation", args=[answer.json()["id"]]))
    else:
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == status


def test_a_made_up_operation_is_not_found(lab: Lab) -> None:
    assert lab.clients["owner"].get(reverse("fabric:operation", args=[uuid.uuid4()])).status_code == 404


def test_pages_carry_a_strict_policy_and_no_inline_script(lab: Lab) -> None:
    answer = lab.clients["administrator"].get(reverse("fabric:fabric"))
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    text = answer.content.decode()
    assert "style=" not in text
    assert "onclick" not in text


def test_sign_in_is_closed_after_ten_wrong_passwords(lab: Lab) -> None:
    client = lab.clients["nobody"]
    for _ in range(9):
        client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "wrong"})
    answer = client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "wrong"})
    assert answer.status_code == 429
    assert client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "x"}).status_code == 429
