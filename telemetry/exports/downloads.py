"""The file of a run on its way to somebody: streamed, under its own name, and noted."""

from __future__ import annotations

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.exports import Download
from accounts.audit.services import Target, audit_record
from accounts.models import User
from telemetry.exports.files import file_of, parts_of
from telemetry.exports.formats import CONTENT_TYPES
from telemetry.exports.models import ExportRun, Format


def run_download(*, by: User, run: ExportRun) -> Download:
    """Return the whole file of a run, in parts; who took it is kept. Raises Forbidden, and NotFound without a file."""
    administrator_required(by)
    path = file_of(run)
    audit_record(action=Action.EXPORT_DOWNLOAD, actor=by, target=Target("export run", str(run.pk), run.name))
    packed = path.suffix == ".gz"
    kind = "application/gzip" if packed else CONTENT_TYPES[Format(run.snapshot["format"])]
    answer = Download(parts_of(path), content_type=kind)
    # The name is ours: letters, digits, dashes and dots.
    answer["Content-Disposition"] = f'attachment; filename="{path.name}"'
    answer["Content-Length"] = str(path.stat().st_size)
    return answer
