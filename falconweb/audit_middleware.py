"""The audit log's eye on requests: each gets an id, and each that may change something leaves an entry.

Services leave the entries that say what changed. What they do not hear of (nobody signed in, a form that is wrong, an
address that is none) and what they are silent about gets one here, by the route that was asked for.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.context import ORIGIN, Origin, bind_origin, new_request_id, unbind_origin
from accounts.audit.models import AuditEntry
from accounts.audit.services import NO_TARGET, Target, audit_record
from accounts.models import User
from accounts.sign_in.security import client_address
from falconweb.api.authentication import SAFE_METHODS
from falconweb.api.errors import CONTENT_TYPE, PREFIX

logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
# Entries that wait for a database, oldest first: of this process, and so many at most. The log file has all of them.
late_entries: deque[tuple[Origin, dict[str, Any]]] = deque(maxlen=1000)
# What is tried at each address, for what no service hears of. An address with several methods names each.
ROUTES: dict[str, Action | dict[str, Action]] = {
    "accounts:sign_in": Action.SIGN_IN,
    "accounts:sign_out": Action.SIGN_OUT,
    "accounts:person_add": Action.PERSON_ADD,
    "accounts:person": Action.PERSON_EDIT,
    "accounts:person_password": Action.PERSON_PASSWORD,
    "accounts:tenant_add": Action.TENANT_ADD,
    "accounts:account_password": Action.PASSWORD_CHANGE,
    "accounts:token_add": Action.TOKEN_CREATE,
    "accounts:token_revoke": Action.TOKEN_REVOKE,
    "accounts:audit_verification": Action.AUDIT_VERIFY_REQUEST,
    "fabric:chassis_add": Action.CHASSIS_ADD,
    "fabric:chassis_edit": Action.CHASSIS_EDIT,
    "fabric:chassis_remove": Action.CHASSIS_REMOVE,
    "fabric:drawer": Action.DRAWER_MODE,
    "links:counter_reset": Action.PORT_COUNTERS,
    "fabric:drift_accept": Action.DRIFT_ACCEPT,
    "fabric:drift_reapply": Action.DRIFT_REAPPLY,
    "fabric:allocation": Action.ALLOCATION_READ,
    "fabric:host_agent": Action.AGENT_ENROL,
    "fabric:operations": Action.OPERATION_REQUEST,
    "fabric:operation_cancel": Action.OPERATION_CANCEL,
    "fabric:draft": Action.PLAN_CHANGE,
    "fabric:plan_title": Action.PLAN_CHANGE,
    "fabric:plan_anew": Action.PLAN_CHANGE,
    "fabric:plan_apply": Action.PLAN_APPLY,
    "fabric:plan_cancel": Action.PLAN_CANCEL,
    "fabric:plan_resume": Action.PLAN_RESUME,
    "fabric:plan_undo": Action.PLAN_UNDO,
    "fabric:plan_discard": Action.PLAN_DISCARD,
    "fabric:tenant": Action.TENANT_EDIT,
    "fabric:tenant_grants": Action.GRANTS_SET,
    "fabric:tenant_removal": Action.TENANT_REMOVE,
    "fabric:quotas": Action.QUOTA_SET,
    "fabric:lease_request": Action.LEASE_REQUEST,
    "fabric:lease_give": Action.LEASE_GIVE,
    "fabric:lease_decision": Action.LEASE_APPROVE,
    "fabric:lease_withdrawal": Action.LEASE_WITHDRAW,
    "fabric:lease_extension": Action.LEASE_EXTEND,
    "fabric:lease_extension_decline": Action.LEASE_EXTENSION_DECLINE,
    "fabric:lease_return": Action.LEASE_RETURN,
    "api:tenant_quotas": Action.QUOTA_SET,
    "api:leases": Action.LEASE_REQUEST,
    "api:leases_given": Action.LEASE_GIVE,
    "api:lease_approval": Action.LEASE_APPROVE,
    "api:lease_decline": Action.LEASE_DECLINE,
    "api:lease_withdrawal": Action.LEASE_WITHDRAW,
    "api:lease_extension": Action.LEASE_EXTEND,
    "api:lease_extension_decline": Action.LEASE_EXTENSION_DECLINE,
    "api:lease_return": Action.LEASE_RETURN,
    "api:chassis_list": Action.CHASSIS_ADD,
    "api:chassis": {"PATCH": Action.CHASSIS_EDIT, "DELETE": Action.CHASSIS_REMOVE},
    "api:drawer_mode": Action.DRAWER_MODE,
    "api:link_counter_reset": Action.PORT_COUNTERS,
    "api:drift_accept": Action.DRIFT_ACCEPT,
    "api:drift_reapply": Action.DRIFT_REAPPLY,
    "api:device_tenant": Action.GRANT_CHANGE,
    "api:host_port_tenant": Action.GRANT_CHANGE,
    "api:operations": Action.OPERATION_REQUEST,
    "api:operation_cancel": Action.OPERATION_CANCEL,
    "api:plans": Action.PLAN_CREATE,
    "api:plan": {"PUT": Action.PLAN_CHANGE, "DELETE": Action.PLAN_DISCARD},
    "api:plan_apply": Action.PLAN_APPLY,
    "api:plan_cancel": Action.PLAN_CANCEL,
    "api:plan_resume": Action.PLAN_RESUME,
    "api:plan_undo": Action.PLAN_UNDO,
    "api:allocation": Action.ALLOCATION_READ,
    "api:my_tokens": Action.TOKEN_CREATE,
    "api:my_token": Action.TOKEN_REVOKE,
    "api:people": Action.PERSON_ADD,
    "api:person": Action.PERSON_EDIT,
    "api:person_password": Action.PERSON_PASSWORD,
    "api:person_token": Action.TOKEN_REVOKE,
    "api:tenants": Action.TENANT_ADD,
    "api:tenant": {"PATCH": Action.TENANT_EDIT, "DELETE": Action.TENANT_REMOVE},
    "api:tenant_grants": Action.GRANTS_SET,
    "api:audit_verification": Action.AUDIT_VERIFY_REQUEST,
    "exports:export_add": Action.EXPORT_ADD,
    "exports:export_edit": Action.EXPORT_EDIT,
    "exports:export_remove": Action.EXPORT_REMOVE,
    "exports:export_switch": Action.EXPORT_SWITCH,
    "exports:export_preview": Action.EXPORT_PREVIEW,
    "exports:export_test": Action.EXPORT_TEST,
    "exports:export_start": Action.EXPORT_RUN,
    "exports:export_run_cancel": Action.EXPORT_CANCEL,
    "exports:export_run_resume": Action.EXPORT_RESUME,
    "api:exports": Action.EXPORT_ADD,
    "api:export": {"PATCH": Action.EXPORT_EDIT, "DELETE": Action.EXPORT_REMOVE},
    "api:export_preview": Action.EXPORT_PREVIEW,
    "api:export_try": Action.EXPORT_TEST,
    "api:export_start": Action.EXPORT_RUN,
    "api:export_run_cancel": Action.EXPORT_CANCEL,
    "api:export_run_resume": Action.EXPORT_RESUME,
    "alerts:acknowledge": Action.ALERT_ACKNOWLEDGE,
    "alerts:rule_add": Action.ALERT_RULE_ADD,
    "alerts:rule": Action.ALERT_RULE_EDIT,
    "alerts:rule_switch": Action.ALERT_RULE_EDIT,
    "alerts:rule_remove": Action.ALERT_RULE_REMOVE,
    "alerts:built_in": Action.ALERT_BUILT_IN,
    "alerts:silence_add": Action.SILENCE_ADD,
    "alerts:silence_end": Action.SILENCE_END,
    "alerts:route_add": Action.ALERT_ROUTE_ADD,
    "alerts:route": Action.ALERT_ROUTE_EDIT,
    "alerts:route_remove": Action.ALERT_ROUTE_REMOVE,
    "alerts:route_test": Action.ALERT_ROUTE_TEST,
    "alerts:delivery_retry": Action.DELIVERY_RETRY,
    "api:alert_acknowledge": Action.ALERT_ACKNOWLEDGE,
    "api:alert_rules": Action.ALERT_RULE_ADD,
    "api:alert_rule": {"PATCH": Action.ALERT_RULE_EDIT, "DELETE": Action.ALERT_RULE_REMOVE},
    "api:alert_built_in": Action.ALERT_BUILT_IN,
    "api:alert_silences": Action.SILENCE_ADD,
    "api:alert_silence_end": Action.SILENCE_END,
    "api:alert_routes": Action.ALERT_ROUTE_ADD,
    "api:alert_route": {"PATCH": Action.ALERT_ROUTE_EDIT, "DELETE": Action.ALERT_ROUTE_REMOVE},
    "api:alert_route_test": Action.ALERT_ROUTE_TEST,
    "api:alert_delivery_retry": Action.DELIVERY_RETRY,
    "deploy:deploy": Action.DEPLOYMENT_MAKE,
    "api:deployments": Action.DEPLOYMENT_MAKE,
    "records:import": Action.RECORDS_IMPORT,
    "api:records": Action.RECORDS_IMPORT,
    "sweeps:sweep_add": Action.SWEEP_CREATE,
    "sweeps:manifest": Action.SWEEP_READ,
    "sweeps:pause": Action.SWEEP_PAUSE,
    "sweeps:resume": Action.SWEEP_RESUME,
    "sweeps:halt": Action.SWEEP_HALT,
    "sweeps:retry": Action.SWEEP_RETRY,
    "sweeps:delete": Action.SWEEP_DELETE,
    "api:sweeps": Action.SWEEP_CREATE,
    "api:sweep_preview": Action.SWEEP_READ,
    "api:sweep": {"DELETE": Action.SWEEP_DELETE},
    "api:sweep_pause": Action.SWEEP_PAUSE,
    "api:sweep_resume": Action.SWEEP_RESUME,
    "api:sweep_halt": Action.SWEEP_HALT,
    "api:sweep_retry": Action.SWEEP_RETRY,
    "events:saved": Action.EVENT_VIEW_ADD,
    "events:saved_change": Action.EVENT_VIEW_CHANGE,
    "events:saved_remove": Action.EVENT_VIEW_REMOVE,
    "api:my_event_views": Action.EVENT_VIEW_ADD,
    "api:my_event_view": {"PATCH": Action.EVENT_VIEW_CHANGE, "DELETE": Action.EVENT_VIEW_REMOVE},
    "history:dashboards": Action.DASHBOARD_ADD,
    "history:dashboard_change": Action.DASHBOARD_CHANGE,
    "history:dashboard_remove": Action.DASHBOARD_REMOVE,
    "runs:run_new": Action.RUN_CREATE,
    "runs:run_from_file": Action.RUN_CREATE,
    "runs:run_cancel": Action.RUN_CANCEL,
    "runs:runs_cancel": Action.RUN_CANCEL,
    "runs:run_retry": Action.RUN_RETRY,
    "runs:run_return": Action.RUN_RETURN,
    "runs:run_delete": Action.RUN_DELETE,
    "api:runs": Action.RUN_CREATE,
    "recommend:recommend_plan": Action.PLAN_CREATE,
    "recommend:recommend_run": Action.RUN_CREATE,
    "api:recommendations": Action.RECOMMENDATION_ASK,
    "api:recommendation_plan": Action.PLAN_CREATE,
    "api:recommendation_run": Action.RUN_CREATE,
    "api:run": {"DELETE": Action.RUN_DELETE},
    "api:run_cancel": Action.RUN_CANCEL,
    "api:run_retry": Action.RUN_RETRY,
    "api:run_return": Action.RUN_RETURN,
    "api:my_dashboards": Action.DASHBOARD_ADD,
    "api:my_dashboard": {"PATCH": Action.DASHBOARD_CHANGE, "DELETE": Action.DASHBOARD_REMOVE},
}
# What the number in an address is of, where it is not what the action is about.
TARGET_KINDS = {
    "fabric:tenant_grants": "tenant",
    "api:tenant_grants": "tenant",
    "api:device_tenant": "device",
    "api:host_port_tenant": "host port",
    "exports:export_run_cancel": "export run",
    "exports:export_run_resume": "export run",
    "api:export_run_cancel": "export run",
    "api:export_run_resume": "export run",
}
SENTENCES = {
    400: "Something about the request was wrong.",
    401: "Nobody was signed in.",
    403: "This was not allowed.",
    404: "There was no such thing, or nothing that the person may see.",
    405: "This address takes no such request.",
    409: "It did not fit what was there.",
    413: "The request was too large.",
    429: "Too many requests came.",
}


class AuditMiddleware:
    """Gives each request its id, and sees to it that one which may change something leaves an entry."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on."""
        origin = _origin_of(request)
        token = bind_origin(origin)
        # Django logs some answers once every middleware is through.
        request.META[ORIGIN] = origin
        try:
            answer = self.get_response(request)
            if request.method not in SAFE_METHODS and not origin.counted:
                _append_missing_entry(request, answer, origin)
            answer[HEADER] = origin.request_id
            return answer
        finally:
            unbind_origin(token)


def action_of(view_name: str, method: str) -> Action:
    """Return what is tried at an address."""
    found = ROUTES.get(view_name, Action.REQUEST)
    return found.get(method, Action.REQUEST) if isinstance(found, dict) else found


def _origin_of(request: HttpRequest) -> Origin:
    return Origin(
        request_id=new_request_id(),
        via="api" if request.path.startswith(PREFIX) else "page",
        address=client_address(request),
        method=request.method or "",
        path=request.path,
    )


def _append_missing_entry(request: HttpRequest, answer: HttpResponseBase, origin: Origin) -> None:
    """Leave the entry that nobody left. What was undone left none: so the log itself is asked."""
    try:
        if origin.appended and AuditEntry.objects.filter(request_id=origin.request_id).exists():
            _append_late()
            return
        match = request.resolver_match
        view_name = match.view_name if match else ""
        action = action_of(view_name, origin.method)
        outcome, sentence = _outcome_of(request, answer, origin)
        entry: dict[str, Any] = {
            "action": action,
            "actor": _person_of(request, origin),
            "target": _target_of(view_name, action, match.kwargs if match else {}),
            "outcome": outcome,
            "sentence": sentence,
            "status": answer.status_code,
        }
    except DatabaseError:
        # Not even who asked can be told; the log file is what is left.
        logger.exception("%s %s (%s) left no entry in the audit log", origin.method, origin.path, origin.request_id)
        return
    try:
        audit_record(**entry)
        _append_late()
    except DatabaseError:
        logger.exception("%s %s (%s) leaves its entry later", origin.method, origin.path, origin.request_id)
        at = f"It was at {timezone.now():%Y-%m-%d %H:%M:%S} UTC."
        late_entries.append((origin, {**entry, "sentence": f"{entry['sentence']} {at}".strip()}))


def _append_late() -> None:
    """Leave the entries for which there was no database, now that there is one."""
    while late_entries:
        try:
            origin, entry = late = late_entries.popleft()
        except IndexError:  # another thread was faster
            return
        token = bind_origin(origin)
        try:
            audit_record(**entry)
        except DatabaseError:
            late_entries.appendleft(late)
            return
        finally:
            unbind_origin(token)


def _outcome_of(request: HttpRequest, answer: HttpResponseBase, origin: Origin) -> tuple[Outcome, str]:
    """Return how a request ended, as far as its answer tells."""
    status = answer.status_code
    if status >= 500:
        return Outcome.FAILED, origin.sentence or "An error of the site stopped it."
    if status >= 400:
        return Outcome.REFUSED, origin.sentence or _problem_sentence(answer) or SENTENCES.get(status, "It was refused.")
    where = answer.get("Location", "")
    if status in {301, 308}:
        return Outcome.REFUSED, "The request was sent on to another address."
    if where.partition("?")[0] == resolve_url(settings.LOGIN_URL):
        return Outcome.REFUSED, SENTENCES[401]
    # A page that was refused something shows the sentence on the page after it.
    told = getattr(getattr(request, "_messages", None), "_queued_messages", [])
    errors = [str(one.message) for one in told if one.level >= messages.ERROR]
    return (Outcome.REFUSED, " ".join(errors)) if errors else (Outcome.DONE, "")


def _problem_sentence(answer: HttpResponseBase) -> str:
    """Return the sentence of a problem document."""
    if answer.get("Content-Type") != CONTENT_TYPE or not isinstance(answer, HttpResponse):
        return ""
    return str(json.loads(answer.content)["detail"])


def _person_of(request: HttpRequest, origin: Origin) -> User | None:
    """Return who asked: also with a token that may not, or in a browser that somebody else's page made ask."""
    person = getattr(request, "user", None)
    if isinstance(person, User):
        return person
    if origin.token is not None:
        return origin.token.person
    person = get_user(request) if hasattr(request, "session") else None
    return person if isinstance(person, User) else None


def _target_of(view_name: str, action: Action, numbers: dict[str, Any]) -> Target:
    if not numbers or action == Action.REQUEST:
        return NO_TARGET
    kind = TARGET_KINDS.get(view_name, action.value.partition(".")[0])
    return Target(kind=kind, id=str(numbers.get(f"{kind}_id", numbers.get("pk", ""))))
