"""Run requests as JSON: the body of the API, and files, which have the same members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from benchmarks.runs.models import Run
from benchmarks.runs.requests import CUSTOM_PRESET, EXECUTORS, RunRequest, spec_for_composition
from benchmarks.runs.rules import MAX_RUN_HOSTS, Composition, HostShare
from benchmarks.runs.services import MAX_TITLE_LENGTH
from core.api.fields import IdField
from core.api.requests import StrictSerializer, sentence_by_field
from core.errors import Invalid
from core.language import _
from core.strict_json import InvalidDocument, loads_strict

MAX_FILE_LENGTH: Final = 256 * 1024  # characters


def _choice(*choices: str, **options: Any) -> serializers.ChoiceField:
    messages: Any = {"invalid_choice": f"One of {', '.join(choices)}."}
    return serializers.ChoiceField(choices=list(choices), error_messages=messages, **options)


class DevicePlaceSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A device, and the host port that it is attached to for the run."""

    device_id = IdField(source="device")
    host_port_id = IdField(source="host_port")


class HostShareSerializer(StrictSerializer, serializers.Serializer[Any]):
    """What a run uses of one of several hosts: how many of its own GPUs, devices of chassis in the order of ranks.

    Its values are the arguments of benchmarks.runs.rules.HostShare, but for `devices`.
    """

    host_id = IdField(source="host")
    local_gpus = serializers.IntegerField(min_value=0, max_value=64, default=0)
    devices = DevicePlaceSerializer(many=True, required=False, default=list)


class PlaceSerializer(HostShareSerializer):
    """Where a run runs: a host, how many of its own GPUs, devices of chassis in the order of ranks, a drive to read.

    Its values are the arguments of benchmarks.runs.rules.Composition, but for `devices` and `others`.
    """

    storage_device_id = IdField(source="storage", allow_null=True, default=None)
    own_drive = serializers.BooleanField(default=False, help_text="Data is read from the host's own NVMe drive")
    cpu = serializers.BooleanField(default=False, help_text="Runs on the host's CPU; no devices then")
    other_hosts = HostShareSerializer(  # type: ignore[call-arg]  # many=True makes a list of it, which has a length
        source="others",
        many=True,
        required=False,
        default=list,
        max_length=MAX_RUN_HOSTS - 1,
        help_text="Further hosts that it runs on together with the first, in the order of ranks",
    )


class ExerciseSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A deliberate failure of a simulated run after a number of steps, to exercise error handling."""

    fails = _choice("out_of_memory", "crash", "hang")
    after = serializers.IntegerField(min_value=0, max_value=10**6, default=0)


@extend_schema_serializer(component_name="RunAsked")
class RunRequestSerializer(StrictSerializer, serializers.Serializer[Any]):
    """A request for a run. `spec` has what differs from the preset; `devices` and `backend` follow from the place."""

    workload = serializers.CharField(max_length=40)
    preset = _choice("tiny", "paper", CUSTOM_PRESET, default=CUSTOM_PRESET)
    spec = serializers.DictField(required=False, default=dict)
    composition = PlaceSerializer()
    executor = _choice(*EXECUTORS)
    title = serializers.CharField(max_length=MAX_TITLE_LENGTH, required=False, default="", allow_blank=True)
    limit_seconds = serializers.FloatField(default=3600.0, help_text="It is ended after so long")
    keep_composed = serializers.BooleanField(default=False, help_text="Its devices stay attached after it")
    may_share = serializers.BooleanField(
        allow_null=True,
        default=None,
        help_text="Other runs may use its host and its switches meanwhile; its record notes which. null: a command may",
    )
    exercise = ExerciseSerializer(required=False, allow_null=True, default=None)


def parse_run_file(text: str) -> RunRequest:
    """Parse a file; raises Invalid, which names the field, or the line and character of a JSON error."""
    if len(text) > MAX_FILE_LENGTH:
        raise Invalid(
            _("The file is too long."), errors={"file": _("At most {most} KiB.", most=MAX_FILE_LENGTH // 1024)}
        )
    try:
        body = RunRequestSerializer(data=loads_strict(text))
    except InvalidDocument as error:
        raise Invalid(error.sentence, errors={error.where or "file": error.sentence}) from error
    if not body.is_valid():
        errors = {
            "file" if field == "non_field_errors" else field: sentence
            for field, sentence in sentence_by_field(body.errors).items()
        }
        raise Invalid(" ".join(f"{field}: {sentence}" for field, sentence in errors.items()), errors=errors)
    return run_request(body.validated_data)


def run_request(values: Mapping[str, Any]) -> RunRequest:
    """Return the request that `RunRequestSerializer` has validated; raises Invalid for a contradiction in it."""
    place, exercise = values["composition"], values["exercise"] or {}
    others = tuple(HostShare(**_share(one)) for one in place["others"])
    composition = Composition(**{**_share(place), "others": others})
    spec = spec_for_composition(values["workload"], values["preset"], values["spec"], composition)
    if exercise and values["executor"] != "simulated":
        sentence = _("Only a simulated run ends badly on demand.")
        raise Invalid(sentence, errors={"exercise": sentence})
    return RunRequest(
        spec=spec,
        composition=composition,
        executor=values["executor"],
        preset=values["preset"],
        title=values["title"],
        limit_seconds=values["limit_seconds"],
        keep_composed=values["keep_composed"],
        may_share=values["may_share"],
        exercise=dict(exercise),
    )


def _share(place: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a host's part with its devices by id; raises Invalid for a device that is named twice."""
    devices = {one["device"]: one["host_port"] for one in place["devices"]}
    if len(devices) < len(place["devices"]):
        raise Invalid(_("A device is named twice."), errors={"composition.devices": _("Name each device once.")})
    return {**place, "devices": devices}


def composition_document(place: Composition) -> dict[str, Any]:
    """Return a composition as files and the API have it; `run_request` reads it."""

    def values(share: HostShare) -> dict[str, Any]:
        devices = [{"device": pk, "host_port": port} for pk, port in share.devices.items()]
        return {**msgspec.structs.asdict(share), "devices": devices}

    document = dict(PlaceSerializer({**values(place), "others": [values(one) for one in place.others]}).data)
    if not place.others:
        del document["other_hosts"]  # which earlier versions do not read
    return document


def run_file(run: Run) -> str:
    """Return a run as a JSON file that requests it again."""
    spec = {name: value for name, value in run.spec.items() if name not in {"workload", "framework", "resume_from"}}
    if not spec.get("command"):
        spec.pop("command", None)
    plain = {
        "workload": run.workload,
        "preset": run.preset or CUSTOM_PRESET,
        "spec": spec,
        "composition": composition_document(Composition.from_json(run.composition)),
        "executor": run.executor,
        "title": run.title,
        "limit_seconds": run.limit_seconds,
        "keep_composed": run.keeps_devices,
        "may_share": run.may_share,
        **({"exercise": run.exercise} if run.exercise else {}),
    }
    return json.dumps(plain, indent=2)
