"""The shapes of runs of benchmarks by the API."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from benchmarks.runs.asking import CUSTOM
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Run
from falconweb.api.bodies import Body
from falconweb.api.fields import IdField, LinkedId, LinkedText

LONGEST_TITLE = 200


class DevicePlaceSerializer(Body, serializers.Serializer[Any]):
    """A device, and the host port that it is attached to for the run."""

    device_id = IdField()
    host_port_id = IdField()


class PlaceSerializer(Body, serializers.Serializer[Any]):
    """Where a run runs: a host, how many of its own GPUs, devices of chassis in the order of ranks, a drive to read."""

    host_id = IdField()
    local_gpus = serializers.IntegerField(min_value=0, max_value=64, default=0)
    devices = DevicePlaceSerializer(many=True, required=False, default=list)
    storage_device_id = IdField(allow_null=True, default=None)
    own_drive = serializers.BooleanField(default=False, help_text="Data is read from the host's own NVMe drive")
    cpu = serializers.BooleanField(default=False, help_text="Runs on the host's CPU; no devices then")


class ExerciseSerializer(Body, serializers.Serializer[Any]):
    """How a simulated run shall end badly, after so many steps."""

    fails = serializers.ChoiceField(choices=["out_of_memory", "crash", "hang"])
    after = serializers.IntegerField(min_value=0, max_value=10**6, default=0)


class RunAskedSerializer(Body, serializers.Serializer[Any]):
    """A run to be made. `spec` has what differs from the preset; `devices` and `backend` follow from the place."""

    workload = serializers.CharField(max_length=40)
    preset = serializers.ChoiceField(choices=["tiny", "paper", CUSTOM], default=CUSTOM)
    spec = serializers.DictField(required=False, default=dict)
    composition = PlaceSerializer()
    executor = serializers.ChoiceField(choices=["torch", "simulated"])
    title = serializers.CharField(max_length=LONGEST_TITLE, required=False, default="", allow_blank=True)
    limit_seconds = serializers.FloatField(default=3600.0, help_text="It is ended after so long")
    keep_composed = serializers.BooleanField(default=False, help_text="Its devices stay attached after it")
    exercise = ExerciseSerializer(required=False, allow_null=True, default=None)


class ParameterSerializer(serializers.Serializer[Any]):
    """A size that may be set."""

    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    unit = serializers.CharField()
    default = serializers.JSONField()
    least = serializers.IntegerField()
    most = serializers.IntegerField()
    choices = serializers.ListField(child=serializers.JSONField())
    help = serializers.CharField()


class WorkloadSerializer(serializers.Serializer[Any]):
    """A workload of the catalogue; `presets` has for each what differs from a spec's defaults."""

    name = serializers.CharField()
    title = serializers.CharField()
    family = serializers.CharField()
    samples = serializers.CharField(help_text="What a batch counts")
    about = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    data_set = serializers.CharField()
    depth = serializers.IntegerField()
    parameters = ParameterSerializer(many=True)
    presets = serializers.DictField(child=serializers.DictField())
    precisions = serializers.ListField(child=serializers.CharField())
    strategies = serializers.ListField(child=serializers.CharField())


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run in short. Times are seconds; `results` has medians with the 5th and 95th percentile and their units."""

    host_id = LinkedId("host.pk")
    host_name = LinkedText("host.name")
    sweep_id = serializers.UUIDField(allow_null=True, read_only=True)
    results = serializers.DictField(read_only=True)

    class Meta:
        model = Run
        fields = [
            "id", "title", "state", "workload", "preset", "executor", "provenance", "host_id", "host_name", "spec_hash",
            "phase", "steps_done", "sentence", "trouble", "error", "exit_code", "results", "sweep_id",
            "requested_by_name", "queued_at", "begun_at", "started_at", "ended_at", "finished_at",
        ]  # fmt: skip


class RunDetailSerializer(RunSerializer):
    """A run with its specification, where it runs, and what it ran on."""

    spec = serializers.DictField(read_only=True)
    topology = serializers.DictField(read_only=True)
    software = serializers.DictField(read_only=True)
    composition = serializers.SerializerMethodField()
    plan_id = serializers.UUIDField(allow_null=True, read_only=True)
    plan_back_id = serializers.UUIDField(allow_null=True, read_only=True)
    repeat_of_id = serializers.UUIDField(allow_null=True, read_only=True)
    exercise = serializers.DictField(read_only=True, help_text="How it ends badly on purpose; empty for all others")
    links = serializers.SerializerMethodField()

    class Meta(RunSerializer.Meta):
        fields = [
            *RunSerializer.Meta.fields, "spec", "composition", "topology", "software", "limit_seconds", "keep_composed",
            "plan_id", "plan_back_id", "repeat_of_id", "cancel_requested_at", "exercise", "links",
        ]  # fmt: skip

    @extend_schema_field(PlaceSerializer(allow_null=True))
    def get_composition(self, run: Run) -> dict[str, Any] | None:
        """Return where it runs, as it is asked for; null for what was imported."""
        if not run.composition:
            return None
        place = Composition.from_json(run.composition)
        return {
            "host_id": place.host,
            "local_gpus": place.local_gpus,
            "devices": [{"device_id": pk, "host_port_id": port} for pk, port in place.devices.items()],
            "storage_device_id": place.storage,
            "own_drive": place.own_drive,
            "cpu": place.cpu,
        }

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_links(self, run: Run) -> dict[str, str]:
        """Return where its series and its log are."""
        return {name: reverse(f"api:run_{name}", args=[run.pk]) for name in ("series", "log")}


class RunSeriesSerializer(serializers.Serializer[Any]):
    """A series of a run. `at` are Unix seconds; both are left out of a list, null stands for no value."""

    key = serializers.CharField()
    unit = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, and an option of fields
    interval = serializers.FloatField(help_text="Seconds that a value is over; 0: of a moment")
    count = serializers.IntegerField()
    at = serializers.ListField(child=serializers.FloatField(), required=False)
    values = serializers.ListField(child=serializers.FloatField(allow_null=True), required=False)


class RunLogSerializer(serializers.Serializer[Any]):
    """A piece of a log, from byte `first` on; ask again from `next`."""

    first = serializers.IntegerField()
    next = serializers.IntegerField()
    text = serializers.CharField()
    more = serializers.BooleanField()
