"""Deployments on somebody's behalf: what they see decides, and that they asked is kept, the request not."""

from __future__ import annotations

from accounts.audit.actions import Action
from accounts.audit.services import Target, audit_record
from accounts.models import User
from benchmarks.deploy.answer import Deployment, deploy
from benchmarks.deploy.places import belief_for, topology_for


def deploy_for(person: User, text: str) -> Deployment:
    """Return what a request comes to for somebody, by what they see. Raises RequestError."""
    made = deploy(text, find_topology=lambda place: topology_for(person, place), find_belief=lambda: belief_for(person))
    after = {"form": made.form, "scheduler": made.scheduler, "options": [one.option for one in made.gains if one.taken]}
    audit_record(action=Action.DEPLOYMENT_MAKE, actor=person, target=Target("deployment", name=made.name), after=after)
    return made
