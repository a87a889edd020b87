"""Allocation files in and out: export what a person sees, and make a plan of a file, all of it or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from accounts.models import Tenant, User
from fabric.allocation.document import Document
from fabric.allocation.exporting import document_of
from fabric.allocation.mapping import map_onto
from fabric.allocation.places import Problem
from fabric.allocation.reading import Read, read_file
from fabric.allocation.report import WAYS, By, Report
from fabric.allocation.seen import site_ahead, site_seen
from fabric.models import Chassis, Plan
from fabric.permissions import refuse_onlooker
from fabric.services.plans import plan_create
from falconweb.errors import Invalid, NotFound

ORIGIN = "file"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A file that was looked at: its problems, or the report of what it comes to here. Nothing is changed by it."""

    read: Read
    report: Report | None = None


def allocation_export(*, person: User, chassis_id: int | None = None, tenant_id: int | None = None) -> Document:
    """Return the allocation of a chassis, of a tenant or of everything, as far as the person may see it.

    Raises NotFound for a chassis that the person does not see, and for a tenant that is not theirs.
    """
    if chassis_id is not None and tenant_id is not None:
        raise Invalid("Choose a chassis or a tenant, not both.", errors={"tenant_id": "Leave it out, or chassis_id."})
    if chassis_id is not None:
        chassis = Chassis.objects.visible_to(person).filter(pk=chassis_id).first()
        if chassis is None:
            raise NotFound("There is no such chassis.")
        return document_of(site_seen(person, chassis_id=chassis.pk), scope="chassis", scope_name=chassis.name)
    if tenant_id is not None:
        tenant = tenants_exported(person).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound("There is no such tenant.")
        return document_of(site_seen(person, tenant=tenant), scope="tenant", scope_name=tenant.name)
    return document_of(site_seen(person))


def tenants_exported(person: User) -> Any:
    """Return the tenants whose allocation the person may export: all for administrators, else their own."""
    rows = Tenant.objects.all()
    return rows if person.is_administrator else rows.filter(people=person)


def allocation_check(
    *,
    person: User,
    raw: bytes,
    format: Literal["", "json", "yaml"] = "",  # noqa: A002 - what the address calls it
    by: str = "exact",
    onto: int | None = None,
) -> Checked:
    """Look at a file: what is wrong with it, or what it comes to on the hardware that the person sees.

    `by` is one of WAYS, `onto` the chassis that a file with one chassis is put onto. Raises Forbidden for those who may
    not compose, NotFound and Invalid for what was chosen besides the file. Nothing is changed.
    """
    refuse_onlooker(person, "attach or detach")
    way: By | None = next((one for one in WAYS if one == by), None)
    if way is None:
        raise Invalid(f"'{by[:50]}' is no way to map a file.", errors={"by": f"One of {', '.join(WAYS)}."})
    if onto is not None and not Chassis.objects.visible_to(person).filter(pk=onto).exists():
        raise NotFound("There is no such chassis.")
    read = read_file(raw, format)
    if read.document is None:
        return Checked(read=read)
    if onto is not None and len(read.document.chassis) != 1:
        count = len(read.document.chassis)
        raise Invalid(
            f"Only a file with one chassis can be put onto a chosen one: this file has {count}.",
            errors={"chassis_id": "Leave it out, or give a file with one chassis."},
        )
    return Checked(read=read, report=map_onto(read.document, site_ahead(person), by=way, onto=onto))


def allocation_plan(
    *, person: User, checked: Checked, name: str = "", partial: bool = False, idempotency_key: str = ""
) -> Plan | None:
    """Make a draft plan of a file that was looked at; None where nothing is to be changed.

    Raises Invalid with `problems`, each with its place, for a file that cannot be read, and, unless `partial`, for one
    of which something does not fit; and as `plan_create` does. Then nothing is made.
    """
    if checked.report is None:
        raise unreadable(checked.read)
    report, misfits = checked.report, len(checked.report.misfits)
    if misfits and not partial:
        raise Invalid(
            f"{_count(misfits)} of the file {'does' if misfits == 1 else 'do'} not fit here, so that nothing is "
            "planned. Map it otherwise, or leave out what does not fit.",
            problems=[Problem(sentence=one.sentence, place=one.place).as_json() for one in report.misfits],
        )
    if report.is_empty:
        return None
    without = f", without {_count(misfits)} that {'does' if misfits == 1 else 'do'} not fit" if misfits else ""
    title = f"Import of {name[:100] or 'an allocation file'}{without}"
    return plan_create(person=person, wanted=report.wanted, title=title, origin=ORIGIN, idempotency_key=idempotency_key)


def unreadable(read: Read) -> Invalid:
    """Return the error for a file with problems."""
    count = f"more than {len(read.problems)}" if read.more else str(len(read.problems))
    return Invalid(
        f"The file has {count} problem{'' if count == '1' else 's'}: {read.problems[0].sentence}",
        problems=[one.as_json() for one in read.problems],
        more_problems=read.more,
    )


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"
