"""Pages of hosts' agents."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import Audience, declare
from accounts.models import User
from accounts.visibility import visible_or_404
from core.language import _
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, holders_label, is_agent_away, latest_report, match_device
from fabric.agents.services import agent_enrol, agent_remove
from fabric.inventory.models import Device, Host


@never_cache
@require_POST
@declare(Audience.OBJECT_VIEWERS, audited_as=Action.AGENT_ENROL, fresh_sign_in=True)
def host_agent(request: HttpRequest, pk: int) -> HttpResponse:
    """Enrol the agent of a host and show its key once; `forget` revokes its key."""
    person = person_of(request)
    host: Host = visible_or_404(Host.objects.all(), person, pk, "host")
    if request.POST.get("forget"):
        agent_remove(person=person, host=host)
        messages.success(
            request, _("The key of the agent of {name} was revoked. Stop the agent on the host.", name=host.name)
        )
        return redirect("fabric:host", pk=pk)
    key = agent_enrol(person=person, host=host)
    return render(request, "fabric/agents/host_agent_key.html", {"host": host, "key": key})


def agent_context(person: User, host: Host, devices: list[Device]) -> dict[str, Any]:
    """Return the agent section of a host's page, limited to these devices.

    Its readings of GPUs are counted without those of others, but for administrators, who see them all.
    """
    agent = HostAgent.objects.filter(host=host).first()
    report = latest_report(agent)
    seen: list[dict[str, Any]] = []
    gpus = 0
    if report is not None:
        neighbours = attached_devices([host.pk])[host.pk]
        for device in devices:
            if (pci := match_device(report, device, neighbours).seen) is not None:
                used_by = holders_label(report.holders.get(pci.address, ()))
                seen.append({"device": device, "pci": pci, "used_by": used_by})
        shown = {one["pci"].address for one in seen}
        gpus = len([one for one in report.gpus if person.is_administrator or one.address in shown])
    return {
        "agent": agent,
        "agent_away": agent is not None and is_agent_away(agent),
        "report": report,
        "seen": seen,
        "gpus": gpus,
    }
