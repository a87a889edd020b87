"""What the API reads and tells of exports and their runs."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers

from falconweb.api.bodies import Body
from telemetry.delivery.syslog import FACILITIES
from telemetry.events.filters import FILTERS
from telemetry.exports.columns import COLUMNS
from telemetry.exports.models import ExportDefinition, ExportRun, Format, Kind, Schedule, Span
from telemetry.exports.options import (
    LONGEST_CA,
    LONGEST_NAME,
    LONGEST_SECRET,
    MOST_BATCH,
    MOST_DAYS,
    MOST_FILES,
    MOST_MINUTES,
)

EXAMPLE = OpenApiExample(
    "All warnings to a collector, all the time",
    value={
        "name": "Warnings to the collector",
        "filter": {"severity": ["Warning", "Critical"]},
        "format": "syslog",
        "target": "syslog",
        "options": {"address": "tls://collector.example:6514"},
        "schedule": "stream",
        "from_now": True,
    },
    request_only=True,
)


@extend_schema_field(
    {
        "type": "object",
        "properties": {
            name: {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]} for name in FILTERS
        },
        "additionalProperties": False,
    }
)
class FilterField(serializers.DictField):
    """A filter of events, by the names of the parameters of their list; its values are texts or lists of texts."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the filter; what a member may be is for the filter to say."""
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        texts = (one for value in data.values() for one in (value if isinstance(value, list) else [value]))
        if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in texts):
            raise serializers.ValidationError("Values are texts, numbers, or lists of them.")
        return data


class OptionsSerializer(Body, serializers.Serializer[Any]):
    """What depends on target and format.

    `address` is a webhook's URL, or udp://, tcp:// or tls://host:port of a syslog server; `ca` (PEM) replaces the
    system's trust. `folder` is below the folder of exports. `gzip` is for files and webhooks; `keep_files` and
    `keep_days` 0 are without limit.
    """

    address = serializers.CharField(required=False, allow_blank=True, max_length=2000)
    ca = serializers.CharField(required=False, allow_blank=True, max_length=LONGEST_CA)
    folder = serializers.CharField(required=False, allow_blank=True, max_length=250)
    gzip = serializers.BooleanField(required=False)
    keep_files = serializers.IntegerField(required=False, min_value=0, max_value=MOST_FILES)
    keep_days = serializers.IntegerField(required=False, min_value=0, max_value=MOST_DAYS)
    minutes = serializers.IntegerField(required=False, min_value=1, max_value=MOST_MINUTES)
    batch = serializers.IntegerField(required=False, min_value=1, max_value=MOST_BATCH)
    facility = serializers.ChoiceField(required=False, choices=list(FACILITIES))
    cef_version = serializers.ChoiceField(required=False, choices=[0, 1])


class ExportSerializer(Body, serializers.Serializer[Any]):
    """What is exported, how, whereto and when.

    `secret` is written and never read (`signed` tells whether there is one); leave it out of a change to keep it.
    `from_now` is for a new one that takes what is new: it leaves out what has happened. `cursor` is the number of the
    last event that was delivered, of such.
    """

    id = serializers.IntegerField(read_only=True)
    name = serializers.CharField(max_length=LONGEST_NAME)
    filter = FilterField(required=False)
    columns = serializers.ListField(child=serializers.ChoiceField(choices=list(COLUMNS)), required=False)
    format = serializers.ChoiceField(choices=Format.choices)
    target = serializers.ChoiceField(choices=Kind.choices)
    options = OptionsSerializer(required=False)
    schedule = serializers.ChoiceField(choices=Schedule.choices, required=False)
    cron = serializers.CharField(required=False, allow_blank=True, max_length=100)
    span = serializers.ChoiceField(choices=Span.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    secret = serializers.CharField(
        required=False, allow_blank=True, write_only=True, trim_whitespace=False, max_length=LONGEST_SECRET
    )
    from_now = serializers.BooleanField(required=False, write_only=True)
    signed = serializers.SerializerMethodField()
    cursor = serializers.IntegerField(read_only=True)
    next_at = serializers.DateTimeField(read_only=True, allow_null=True)
    note = serializers.CharField(read_only=True)
    owner_name = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    changed_at = serializers.DateTimeField(read_only=True)

    def get_signed(self, row: ExportDefinition) -> bool:
        """Tell whether requests are signed."""
        return bool(row.secret_encrypted)


class ExportPreviewSerializer(serializers.Serializer[Any]):
    """The first lines that an export would give, a heading included, and how many events fit by now."""

    lines = serializers.ListField(child=serializers.CharField())
    count = serializers.IntegerField()


class TriedSerializer(serializers.Serializer[Any]):
    """What came of a try."""

    sentence = serializers.CharField()


class ExportRunSerializer(serializers.ModelSerializer[ExportRun]):
    """A run: `counted` of `total` events, up to the event `cursor`; `percent` null where nobody can know."""

    export_id = serializers.IntegerField(source="definition_id", allow_null=True)
    percent = serializers.IntegerField(allow_null=True)
    has_file = serializers.BooleanField()

    class Meta:
        model = ExportRun
        fields = [
            "id", "export_id", "name", "state", "trigger", "requested_by_name", "percent", "counted", "total", "bytes",
            "cursor", "until", "has_file", "file", "checksum", "attempts", "retry_at", "error", "created_at",
            "started_at", "resumed_at", "ended_at",
        ]  # fmt: skip
