"""Parsing of the bytes of a file to a document, or to all its problems, independently of the site."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal

from core.documents import (
    DocumentNode,
    DocumentProblem,
    DocumentProblems,
    DocumentSyntaxError,
    TooManyProblemsError,
    json_type,
    quoted,
    read_json,
    read_yaml,
)
from core.language import _, gettext_noop
from fabric.allocation.document import (
    NOT_SPECIFIED,
    AllocationDocument,
    ChassisEntry,
    DeviceEntry,
    DrawerEntry,
    HostEntry,
    HostPortEntry,
    PortEntry,
    SlotEntry,
)
from fabric.allocation.rules import CHASSIS_FIELDS, DEVICE_FIELDS, AllocationReport
from fabric.allocation.schema import FORMAT, KINDS, SCOPES, VERSION, check_schema

MAX_FILE_BYTES = 5 * 2**20  # bytes, which FILE_TOO_LARGE names
FILE_TOO_LARGE: Final = gettext_noop(
    "The file is larger than 5 MiB. Export and import one chassis or tenant at a time."
)
BODY_LIMIT = (MAX_FILE_BYTES + 2**20, FILE_TOO_LARGE)  # alone or in a form; a form without a file may be as large


@dataclass(frozen=True, kw_only=True)
class AllocationFile:
    """A parsed file: its document, or None and the problems; `more` if there are more problems than listed.

    `report` is the mapping to this site, once it was checked.
    """

    document: AllocationDocument | None
    problems: tuple[DocumentProblem, ...] = ()
    more: bool = False
    format: str = ""
    text: str = ""
    report: AllocationReport | None = None


def parse_file(raw: bytes, format: Literal["", "json", "yaml"] = "") -> AllocationFile:  # noqa: A002 - the URL parameter
    """Parse a file; without `format` a file that begins with a brace or bracket is JSON, any other is YAML."""
    if len(raw) > MAX_FILE_BYTES:
        return AllocationFile(document=None, problems=(DocumentProblem(sentence=_(FILE_TOO_LARGE)),))
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        problems = DocumentProblems(before)
        problems.add(_("This is not UTF-8 text. Save the file as UTF-8."), "", len(before))
        return AllocationFile(document=None, problems=problems.in_order())
    chosen = format or ("json" if text.lstrip()[:1] in {"{", "["} else "yaml")
    problems = DocumentProblems(text)
    document, more = None, False
    try:
        document = _parse_document(text, chosen, problems)
    except DocumentSyntaxError as error:
        problems.add_last(error.sentence, error.offset)
    except TooManyProblemsError:
        more = True
    found = problems.in_order()
    return AllocationFile(document=None if found else document, problems=found, more=more, format=chosen, text=text)


def _parse_document(text: str, format: str, problems: DocumentProblems) -> AllocationDocument | None:  # noqa: A002 - as its caller
    if not text.strip():
        raise DocumentSyntaxError(_("The file is empty."), 0)
    root = (read_json if format == "json" else read_yaml)(text, problems)
    if not _is_allocation_file(root, problems):
        return None
    check_schema(root, problems)
    document = _DocumentBuilder(problems).document(root)
    _DuplicateFinder(problems).check(document)
    return document


def _is_allocation_file(root: DocumentNode, problems: DocumentProblems) -> bool:
    """Return whether the rest can be checked: the fields of another format or version are unknown."""
    if not isinstance(root.value, dict):
        found = {"array": _("a list"), "string": _("a text"), "null": _("nothing")}.get(
            json_type(root.value), _("a number or word")
        )
        sentence = _("The file must be one object with 'format', 'version' and 'chassis', not {found}.", found=found)
        problems.add(sentence, "", root.offset)
        return False
    name, version = root.value.get("format"), root.value.get("version")
    if name is None or name.value != FORMAT:
        if name is None:
            sentence = _("This is not an allocation file. It has no 'format': '{format}' is expected.", format=FORMAT)
        else:
            sentence = _(
                "This is not an allocation file. It has another 'format': '{format}' is expected.", format=FORMAT
            )
        offset = root.offset if name is None else name.offset
        problems.add(sentence, "format" if name else "", offset)
        return False
    if version is None or isinstance(version.value, bool) or version.value != VERSION:
        if version is None:
            sentence = _(
                "This is an allocation file without a version. This site understands version {version}.",
                version=VERSION,
            )
        else:
            known = version.value
            sentence = _(
                "This is an allocation file of version {found}. This site understands version {version}.",
                found=known if isinstance(known, int | float) else quoted(str(known)),
                version=VERSION,
            )
        problems.add(
            sentence,
            "version" if version else "",
            version.offset if version else root.offset,
        )
        return False
    return True


class _DocumentBuilder:
    """Builds a document of all valid parts, so that all problems are found in one pass."""

    def __init__(self, problems: DocumentProblems) -> None:
        self.problems = problems

    def document(self, root: DocumentNode) -> AllocationDocument:
        scope = _members(root).get("scope")
        return AllocationDocument(
            scope=_choice(scope, "kind", SCOPES) if scope else "",
            scope_name=_text(scope, "name") if scope else "",
            chassis=tuple(self._chassis(one, f"chassis[{at}]") for at, one in _items(root, "chassis")),
        )

    def _chassis(self, node: DocumentNode, path: str) -> ChassisEntry:
        return ChassisEntry(
            place=self.problems.place(path, node.offset),
            **{name: _text(node, name) for name in CHASSIS_FIELDS},
            drawers=tuple(self._drawer(one, f"{path}.drawers[{at}]") for at, one in _items(node, "drawers")),
        )

    def _drawer(self, node: DocumentNode, path: str) -> DrawerEntry:
        return DrawerEntry(
            place=self.problems.place(path, node.offset),
            number=_whole(node, "number"),
            name=_text(node, "name"),
            mode=_text(node, "mode"),
            host_ports=tuple(
                self._host_port(one, f"{path}.host_ports[{at}]") for at, one in _items(node, "host_ports")
            ),
            slots=tuple(self._slot(one, f"{path}.slots[{at}]") for at, one in _items(node, "slots")),
        )

    def _host_port(self, node: DocumentNode, path: str) -> HostPortEntry:
        host: Any = _members(node).get("host", NOT_SPECIFIED)
        if host is not NOT_SPECIFIED:
            found = isinstance(host.value, dict)
            host = HostEntry(name=_text(host, "name"), identity=_text(host, "identity")) if found else None
        return HostPortEntry(label=_text(node, "label"), host=host, **self._port(node, path))

    def _slot(self, node: DocumentNode, path: str) -> SlotEntry:
        device = _members(node).get("device")
        attached: Any = _members(node).get("attached_to", NOT_SPECIFIED)
        if attached is not NOT_SPECIFIED:
            attached = attached.value if isinstance(attached.value, str) else None
        return SlotEntry(
            slot=_whole(node, "slot"),
            device=None if device is None else _device(device),
            attached_to=attached,
            **self._port(node, path),
        )

    def _port(self, node: DocumentNode, path: str) -> dict[str, Any]:
        return {
            "place": self.problems.place(path, node.offset),
            "port_type": _text(node, "port_type"),
            "lanes": _whole(node, "lanes"),
            "tenant": _text(node, "tenant"),
        }


def _device(node: DocumentNode) -> DeviceEntry:
    return DeviceEntry(**{name: _text(node, name) for name in DEVICE_FIELDS} | {"kind": _choice(node, "kind", KINDS)})


def _members(node: DocumentNode) -> dict[str, DocumentNode]:
    return node.value if isinstance(node.value, dict) else {}


def _items(node: DocumentNode, name: str) -> list[tuple[int, DocumentNode]]:
    found = _members(node).get(name)
    return list(enumerate(found.value)) if found is not None and isinstance(found.value, list) else []


def _text(node: DocumentNode, name: str) -> str:
    found = _members(node).get(name)
    return found.value if found is not None and isinstance(found.value, str) else ""


def _choice(node: DocumentNode, name: str, known: tuple[str, ...]) -> str:
    text = _text(node, name)
    return text if text in known else ""


def _whole(node: DocumentNode, name: str) -> int | None:
    found = _members(node).get(name)
    value = None if found is None else found.value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class _DuplicateFinder:
    def __init__(self, problems: DocumentProblems) -> None:
        self.problems = problems
        self.seen: dict[Hashable, PortEntry | ChassisEntry | DrawerEntry] = {}

    def check(self, document: AllocationDocument) -> None:
        """Report every duplicate: at its second position, with the line of the first."""
        for chassis in document.chassis:
            where = chassis.place.path
            self._note(
                ("name", chassis.name), chassis, _("The chassis {name}", name=quoted(chassis.name)), bool(chassis.name)
            )
            uuid = chassis.uuid.casefold()
            self._note(("uuid", uuid), chassis, _("The chassis of UUID {uuid}", uuid=quoted(uuid)), bool(uuid))
            for drawer in chassis.drawers:
                key: Hashable = drawer.name if drawer.number is None else drawer.number
                label = (
                    _("Drawer {number}", number=drawer.number)
                    if drawer.number is not None
                    else _("The drawer {name}", name=quoted(drawer.name))
                )
                self._note(("drawer", where, key), drawer, label, is_named=True)
                for port in drawer.host_ports:
                    label = _("Host port {label}", label=quoted(port.label))
                    self._note(("port", where, port.label), port, label, bool(port.label))
                self._check_slots(drawer)

    def _check_slots(self, drawer: DrawerEntry) -> None:
        for slot in drawer.slots:
            device = slot.device
            self._note(
                ("slot", drawer.place.path, slot.slot),
                slot,
                _("Slot {number}", number=slot.slot),
                slot.slot is not None,
            )
            if device is not None and device.serial_number:
                key = ("device", device.manufacturer, device.model, device.serial_number)
                label = _("The device with serial number {serial}", serial=quoted(device.serial_number))
                self._note(key, slot, label, is_named=True)
            elif device is None and slot.slot is None:
                self.problems.add_at(_("Neither a slot nor a device is named here."), slot.place)

    def _note(self, key: Hashable, entry: PortEntry | ChassisEntry | DrawerEntry, label: str, is_named: bool) -> None:
        if not is_named:
            return
        first = self.seen.setdefault(key, entry)
        if first is not entry:
            self.problems.add_at(
                _(
                    "{part} is listed twice: first in line {line} ({path}).",
                    part=label,
                    line=first.place.line,
                    path=first.place.path,
                ),
                entry.place,
            )
