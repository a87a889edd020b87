"""What is done here, in one place: a line for each action with its code and its words for people."""

from __future__ import annotations

from django.db import models


class Action(models.TextChoices):
    """An action. What stands before the dot is the kind of thing that it is about; codes never change."""

    SIGN_IN = "account.sign_in", "Sign in"
    SIGN_OUT = "account.sign_out", "Sign out"
    PASSWORD_CHANGE = "account.password", "Change the own password"
    TOKEN_CREATE = "token.create", "Make a token"
    TOKEN_REVOKE = "token.revoke", "Revoke a token"
    PERSON_ADD = "person.add", "Add a person"
    PERSON_EDIT = "person.edit", "Change a person"
    PERSON_PASSWORD = "person.password", "Reset a person's password"
    TENANT_ADD = "tenant.add", "Add a tenant"
    TENANT_EDIT = "tenant.edit", "Rename a tenant"
    TENANT_REMOVE = "tenant.remove", "Remove a tenant"
    GRANT_CHANGE = "grant.change", "Grant or free a device or host port"
    GRANTS_SET = "grant.set", "Set what a tenant holds"
    LEASE_REQUEST = "lease.request", "Ask for a lease"
    LEASE_GIVE = "lease.give", "Give a lease"
    LEASE_APPROVE = "lease.approve", "Approve a lease"
    LEASE_DECLINE = "lease.decline", "Decline a lease"
    LEASE_WITHDRAW = "lease.withdraw", "Withdraw a lease"
    LEASE_START = "lease.start", "Start a lease"
    LEASE_EXTENSION_REQUEST = "lease.extension_request", "Ask for another end of a lease"
    LEASE_EXTENSION_DECLINE = "lease.extension_decline", "Decline another end of a lease"
    LEASE_EXTEND = "lease.extend", "Set the end of a lease"
    LEASE_RETURN = "lease.return", "Return a lease before its end"
    LEASE_END = "lease.end", "End a lease"
    QUOTA_SET = "quota.set", "Set a tenant's quota"
    CHASSIS_ADD = "chassis.add", "Add a chassis"
    CHASSIS_EDIT = "chassis.edit", "Change a chassis"
    CHASSIS_REMOVE = "chassis.remove", "Remove a chassis"
    OPERATION_REQUEST = "operation.request", "Ask for an attach, detach or move"
    OPERATION_CANCEL = "operation.cancel", "Cancel an operation"
    OPERATION_FORCE = "operation.force", "Take a device that is in use"
    OPERATION_END = "operation.end", "End an operation"
    ALLOCATION_READ = "allocation.read", "Look at an allocation file"
    PLAN_CREATE = "plan.create", "Make a plan"
    PLAN_CHANGE = "plan.change", "Change the draft of a plan"
    PLAN_DISCARD = "plan.discard", "Discard the draft of a plan"
    PLAN_APPLY = "plan.apply", "Apply a plan"
    PLAN_CANCEL = "plan.cancel", "Cancel a plan"
    PLAN_RESUME = "plan.resume", "Resume a plan"
    PLAN_UNDO = "plan.undo", "Plan the way back from a plan"
    PLAN_END = "plan.end", "End a plan"
    AGENT_ENROL = "host.agent_enrol", "Enrol the agent of a host"
    AGENT_FORGET = "host.agent_forget", "Forget the agent of a host"
    DRAWER_MODE = "drawer.mode", "Ask for another mode of a drawer"
    DRIFT_ACCEPT = "drift.accept", "Accept what differs from the approved allocation"
    DRIFT_REAPPLY = "drift.reapply", "Re-apply the approved allocation"
    AUDIT_EXPORT = "audit.export", "Export the audit log"
    AUDIT_VERIFY_REQUEST = "audit.request", "Ask for the audit log to be verified"
    AUDIT_VERIFY = "audit.verify", "Verify the audit log"
    AUDIT_SEAL_BROKEN = "audit.seal_broken", "Find the seal of the audit log broken"
    AUDIT_RESEAL = "audit.reseal", "Accept a broken seal of the audit log"
    AUDIT_MORE_REFUSALS = "audit.further_refusals", "Further refused requests, counted"
    # What no service and no face gave a name.
    REQUEST = "request", "Request"


class Outcome(models.TextChoices):
    """How an action ended."""

    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    FAILED = "failed", "Failed"


def action_words(code: str) -> str:
    """Return the words for an action; of one that this version does not know, its code."""
    return Action(code).label if code in Action.values else code
