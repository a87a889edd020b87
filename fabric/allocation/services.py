"""Allocation files: export of the hardware that a user sees, and import as a plan, as a whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from accounts.access import require_composer
from accounts.models import Tenant, User
from accounts.visibility import visible_or_404
from core.documents import DocumentProblem
from core.errors import Invalid, NotFound
from core.language import _, _n
from fabric.allocation.document import AllocationDocument, export_document
from fabric.allocation.mapping import map_document
from fabric.allocation.reader import AllocationFile, parse_file
from fabric.allocation.rules import MAPPING_MODES, MappingMode
from fabric.allocation.selectors import projected_hardware, visible_hardware
from fabric.inventory.models import Chassis
from fabric.operations.models import Plan
from fabric.plans.services import plan_create

ORIGIN = "file"


def allocation_export(
    *, person: User, chassis_id: int | None = None, tenant_id: int | None = None
) -> AllocationDocument:
    """Return the allocation of a chassis, of a tenant or of everything that the user may see.

    Raises NotFound for a chassis that the user does not see, and for a tenant that is not theirs.
    """
    if chassis_id is not None and tenant_id is not None:
        raise Invalid(
            _("Choose a chassis or a tenant, not both."), errors={"tenant_id": "Leave it out, or chassis_id."}
        )
    if chassis_id is not None:
        chassis: Chassis = visible_or_404(Chassis.objects.all(), person, chassis_id, "chassis")
        return export_document(
            visible_hardware(person, chassis_id=chassis.pk), scope="chassis", scope_name=chassis.name
        )
    if tenant_id is not None:
        tenant = exportable_tenants(person).filter(pk=tenant_id).first()
        if tenant is None:
            raise NotFound(_("There is no such tenant."))
        return export_document(visible_hardware(person, tenant=tenant), scope="tenant", scope_name=tenant.name)
    return export_document(visible_hardware(person))


def exportable_tenants(person: User) -> Any:
    """Return the tenants whose allocation the user may export: all for administrators, else their own."""
    rows = Tenant.objects.all()
    return rows if person.is_administrator else rows.filter(people=person)


def allocation_check(
    *,
    person: User,
    raw: bytes,
    format: Literal["", "json", "yaml"] = "",  # noqa: A002 - the URL parameter
    by: str = "exact",
    onto: int | None = None,
) -> AllocationFile:
    """Check a file: return its problems, or its mapping to the hardware that the user sees. Nothing is changed.

    `by` is one of MAPPING_MODES, `onto` the chassis that a file with one chassis is mapped to. Raises Forbidden for
    users who may not compose, NotFound and Invalid for invalid parameters.
    """
    require_composer(person, "attach or detach")
    way: MappingMode | None = next((one for one in MAPPING_MODES if one == by), None)
    if way is None:
        raise Invalid(
            _("'{mode}' is not a mapping mode.", mode=by[:50]),
            errors={"by": _("One of {choices}.", choices=", ".join(MAPPING_MODES))},
        )
    if onto is not None and not Chassis.objects.visible_to(person).filter(pk=onto).exists():
        raise NotFound(_("There is no such chassis."))
    file = parse_file(raw, format)
    if file.document is None:
        return file
    if onto is not None and len(file.document.chassis) != 1:
        count = len(file.document.chassis)
        raise Invalid(
            _("Only a file with one chassis can be mapped to a chosen one: this file has {count}.", count=count),
            errors={"chassis_id": "Leave it out, or give a file with one chassis."},
        )
    return replace(file, report=map_document(file.document, projected_hardware(person), by=way, onto=onto))


def allocation_plan(
    *, person: User, checked: AllocationFile, name: str = "", partial: bool = False, idempotency_key: str = ""
) -> Plan | None:
    """Create a draft plan of a checked file; None where there is nothing to change.

    Raises Invalid with `problems`, each with its position, for a file that cannot be read, and, unless `partial`, for
    one with entries that do not fit; and as `plan_create` does. Nothing is created then.
    """
    if checked.report is None:
        raise unreadable_file_error(checked)
    report, misfits = checked.report, len(checked.report.misfits)
    entries, do = ("1 entry", "does") if misfits == 1 else (f"{misfits} entries", "do")
    if misfits and not partial:
        raise Invalid(
            _n(
                "{count} entry of the file does not fit here, so that nothing is planned. Map it otherwise, or leave "
                "out what does not fit.",
                "{count} entries of the file do not fit here, so that nothing is planned. Map it otherwise, or leave "
                "out what does not fit.",
                misfits,
            ),
            problems=[DocumentProblem(sentence=one.sentence, place=one.place).as_json() for one in report.misfits],
        )
    if report.is_empty:
        return None
    without = f", without {entries} that {do} not fit" if misfits else ""
    title = f"Import of {name[:100] or 'an allocation file'}{without}"
    return plan_create(
        person=person, desired=report.desired, title=title, origin=ORIGIN, idempotency_key=idempotency_key
    )


def unreadable_file_error(file: AllocationFile) -> Invalid:
    """Return the error for a file with problems."""
    count, first = len(file.problems), file.problems[0].sentence
    if file.more:
        sentence = _("The file has more than {count} problems: {first}", count=count, first=first)
    else:
        sentence = _n(
            "The file has {count} problem: {first}", "The file has {count} problems: {first}", count, first=first
        )
    return Invalid(
        sentence,
        problems=[one.as_json() for one in file.problems],
        more_problems=file.more,
    )
