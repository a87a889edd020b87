"""Pages of allocation files: export, and import through a report and a plan."""

from __future__ import annotations

from typing import Any, Literal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import person_of
from accounts.audit.actions import Action
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from accounts.models import User
from core.database import natural
from core.errors import FalconWebError, Invalid
from core.language import _, gettext_noop
from core.text import parse_id
from fabric.allocation.document import FORMATS, Format
from fabric.allocation.reader import BODY_LIMIT, FILE_TOO_LARGE, MAX_FILE_BYTES, AllocationFile
from fabric.allocation.rules import MAPPING_MODES
from fabric.allocation.services import allocation_check, allocation_export, allocation_plan, exportable_tenants
from fabric.inventory.models import Chassis

CONTENT_TYPES: dict[Format, str] = {"json": "application/json", "yaml": "application/yaml"}
MAX_LINE_LENGTH, MAX_NAME_LENGTH = 160, 100
MAX_LINES = 500


@require_GET
@declare(Audience.EVERYBODY, no_page_test=NO_PAGE)
def allocation_export_file(request: HttpRequest) -> HttpResponse:
    """Send the allocation as a file; `what` is 'everything', 'chassis-3' or 'tenant-3', `format` json or yaml."""
    format = _format(request.GET.get("format", "json"))  # noqa: A001 - the name of the URL parameter
    kind, _dash, number = request.GET.get("what", "everything").partition("-")
    if kind not in {"everything", "chassis", "tenant"}:
        raise Invalid(_("Choose everything, a chassis or a tenant."))
    document = allocation_export(
        person=person_of(request),
        chassis_id=parse_id(number) if kind == "chassis" else None,
        tenant_id=parse_id(number) if kind == "tenant" else None,
    )
    answer = HttpResponse(document.text(format), content_type=f"{CONTENT_TYPES[format]}; charset=utf-8")
    # The time is in the file name only: the same allocation gives the same bytes.
    name = slugify(document.scope_name) or document.scope
    stamp = timezone.now().strftime("%Y%m%dT%H%M%SZ")
    answer["Content-Disposition"] = f'attachment; filename="allocation-{name}-{stamp}.{format}"'
    return answer


@require_http_methods(["GET", "POST"])
@declare(
    Audience.EVERYBODY,
    audited_as=Action.ALLOCATION_READ,
    menu_entry=MenuEntry(gettext_noop("Allocation files"), "Compose", 3),
    body_limit=BODY_LIMIT,
)
def allocation(request: HttpRequest) -> HttpResponse:
    """Show the forms; POST `file` or `text` shows problems or the report, with `make` it creates the plan."""
    person = person_of(request)
    if request.method != "POST":
        return _page(request, person, {"by": "exact"})
    raw, name = _uploaded(request)
    shown: dict[str, Any] = {
        "by": request.POST.get("by", "exact"), "onto": request.POST.get("onto", ""), "name": name,
        "partial": "partial" in request.POST,
    }  # fmt: skip
    onto = parse_id(shown["onto"]) if shown["onto"] else None
    try:
        checked = allocation_check(person=person, raw=raw, format=_format_of(name), by=shown["by"], onto=onto)
        shown |= _report_context(checked)
        if "make" not in request.POST or checked.report is None:
            return _page(request, person, shown, status=400 if checked.report is None else 200)
        plan = allocation_plan(person=person, checked=checked, name=name, partial=shown["partial"])
    except FalconWebError as error:
        if error.status not in {400, 409}:
            raise
        return _page(request, person, {**shown, "refused": error.sentence}, status=error.status)
    if plan is None:
        messages.info(request, _("Nothing to change: the hardware matches the file."))
        return redirect("fabric:allocation")
    return redirect("fabric:plan", pk=plan.pk)


def _uploaded(request: HttpRequest) -> tuple[bytes, str]:
    """Return the submitted bytes and the file name; a file takes precedence over text."""
    file = request.FILES.get("file")
    if file is not None and file.name:
        # One more byte shows that it is too large.
        return file.read(MAX_FILE_BYTES + 1), _printable(file.name)
    # Browsers send each line break of a form as two characters.
    text = request.POST.get("text", "").replace("\r\n", "\n")
    return text.encode("utf-8", "surrogatepass"), _printable(request.POST.get("name", ""))


def _printable(name: str) -> str:
    return "".join(one for one in name if one.isprintable())[:MAX_NAME_LENGTH]


def _report_context(file: AllocationFile) -> dict[str, Any]:
    # Lines as `Problems` counts them, not at every line break character of Unicode.
    lines = file.text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if file.problems else []
    return {
        "text": file.text,
        "report": file.report,
        "exact": file.report.exact if file.report else (),
        "most": MAX_LINES,
        "more": file.more,
        "problems": [
            (one, lines[one.place.line - 1][:MAX_LINE_LENGTH] if 0 < one.place.line <= len(lines) else "")
            for one in file.problems
        ],
    }


def _page(request: HttpRequest, person: User, found: dict[str, Any], *, status: int = 200) -> HttpResponse:
    chassis = Chassis.objects.visible_to(person).order_by(natural("name"))
    context = {
        **found,
        "chassis": chassis,
        "tenants": exportable_tenants(person).order_by(natural("name")),
        "formats": FORMATS,
        "ways": [(mode, _(label)) for mode, label in MAPPING_MODES.items()],
        "may_import": person.may_compose,
        "largest": MAX_FILE_BYTES // 2**20,
        "largest_bytes": MAX_FILE_BYTES,
        "too_large": _(FILE_TOO_LARGE),
    }
    return render(request, "fabric/allocation/allocation.html", context, status=status)


def _format(text: str) -> Format:
    for one in FORMATS:
        if one == text:
            return one
    raise Invalid(_("An allocation file is JSON or YAML."))


def _format_of(name: str) -> Literal["", "json", "yaml"]:
    """Return the format by the extension of a file name, '' if unknown."""
    ending = name.lower().rpartition(".")[2] if "." in name else ""
    return "json" if ending == "json" else "yaml" if ending in {"yaml", "yml"} else ""
