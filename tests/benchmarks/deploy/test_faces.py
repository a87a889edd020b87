"""The page and the API of deployments: on hosts that the person sees, by runs that they see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from benchmarks.deploy.request import DeploymentTarget
from benchmarks.deploy.services import target_topology
from core.errors import NotFound
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot, Switch
from fabric.operations.models import Plan
from tests.benchmarks.deploy.requests import MODAK, SHORT, changed

pytestmark = pytest.mark.django_db
PAGE = "/benchmarks/deploy/"
API = "/api/v1/benchmarks/deployments/"


@pytest.fixture
def host(tenant: Tenant) -> Host:
    """A host with one GPU of its own and two of a drawer, granted to a tenant."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    switch = Switch.objects.create(chassis=chassis, uri="/s", name="Switch", drawer=drawer)
    made = Host.objects.create(name="node-1", identity="node-1", local_gpu_count=1)
    ports = [Port.objects.create(chassis=chassis, uri=f"/p{one}", name=f"P{one}", switch=switch) for one in range(3)]
    host_port = HostPort.objects.create(
        chassis=chassis, uri="/z", name="H1", endpoint_uri="/e", drawer=drawer, port=ports[0], host=made, tenant=tenant,
        label="H1", number=1,
    )  # fmt: skip
    for number in (1, 2):
        slot = Slot.objects.create(
            chassis=chassis,
            uri=f"/slot{number}",
            name=f"slot {number}",
            drawer=drawer,
            port=ports[number],
            number=number,
        )
        Device.objects.create(
            chassis=chassis, uri=f"/dev{number}", name=f"GPU {number}", slot=slot, host_port=host_port, tenant=tenant,
            kind="gpu", endpoint_uri=f"/e{number}", model="Tesla V100-PCIE-16GB", memory_bytes=16_000_000_000,
        )  # fmt: skip
    return made


@pytest.fixture
def client(member: User) -> Client:
    """A browser of somebody of the tenant."""
    made = Client()
    made.force_login(member)
    return made


def deployment_response(client: Client, request: dict[str, Any]) -> Any:
    """Return the API's answer to a request."""
    return client.post(API, json.dumps(request), content_type="application/json")


def test_the_api_answers_files_reasons_and_gains(client: Client, host: Host) -> None:
    answer = deployment_response(client, changed(SHORT, "/gpus", 3))
    assert answer.status_code == 200
    body = answer.json()
    assert {one["kind"] for one in body["files"]} == {"slurm", "torque", "bash", "apptainer", "docker"}
    assert [one["kind"] for one in body["files"] if one["is_wanted"]] == ["slurm", "apptainer", "docker"]
    assert body["prediction"]["provenance"] == "predicted"
    assert body["gains"][0]["option"] == "data_parallelism"
    assert deployment_response(client, SHORT).json()["errors"] == {
        "/gpus": "4 GPUs are requested, but node-1 has 3. Name a composition that has them."
    }


def test_a_composition_and_an_id_name_a_place_as_well(client: Client, host: Host) -> None:
    device = Device.objects.get(name="GPU 1")
    composition = {"host": host.pk, "devices": {str(device.pk): device.host_port_id}}
    request = changed(changed(SHORT, "/host", None), "/gpus", None)
    one = deployment_response(client, request | {"composition": composition}).json()
    assert one["prediction"]["spec"]["devices"] == 1
    three = deployment_response(client, request | {"host": host.pk}).json()
    assert three["prediction"]["spec"]["devices"] == 3
    modak = changed(MODAK, "/job/job_options/request_gpus", None)
    assert deployment_response(client, modak).json()["prediction"]["spec"]["devices"] == 3
    assert "/composition" in deployment_response(client, request | {"composition": {"host": "x"}}).json()["errors"]


def test_what_somebody_may_not_see_is_no_place_for_them(host: Host) -> None:
    stranger = User.objects.create_user("mallory", tenant=Tenant.objects.create(name="Elsewhere"))
    device = Device.objects.get(name="GPU 1")
    own = Host.objects.create(name="own", identity="own")
    theirs = HostPort.objects.get(host=host)
    theirs.pk, theirs.uri, theirs.host, theirs.tenant, theirs.number = None, "/own", own, stranger.tenant, 2
    theirs.endpoint_uri, theirs.label, theirs.port = "/own-e", "H2", Port.objects.get(uri="/p1")
    theirs.save()
    assert target_topology(stranger, DeploymentTarget(pointer="/host", host="own")).host == "own"
    for place in (
        DeploymentTarget(pointer="/host", host="node-1"),
        DeploymentTarget(pointer="/host", host=str(host.pk)),
        DeploymentTarget(pointer="/c", composition={"host": host.pk}),
        DeploymentTarget(pointer="/c", composition={"host": own.pk, "others": [{"host": host.pk, "local_gpus": 1}]}),
        DeploymentTarget(pointer="/c", composition={"host": host.pk, "devices": {str(device.pk): device.host_port_id}}),
    ):
        with pytest.raises(NotFound):
            target_topology(stranger, place)


def test_a_host_is_exported_as_infragraph_as_it_is_or_as_after_a_plan(client: Client, host: Host) -> None:
    address = f"/api/v1/benchmarks/hosts/{host.pk}/infragraph/"

    def gpus(**query: str) -> int:
        found = client.get(address, query).json()
        return sum(one["count"] for one in found["instances"] if "v100" in one["name"])

    assert gpus() == 2
    tenant = Tenant.objects.get(host_ports__host=host)
    device = Device.objects.get(name="GPU 1")
    plan = Plan.objects.create(title="Detach", tenant=tenant, wanted={"attachments": {str(device.pk): None}})
    assert gpus(plan=str(plan.pk)) == 1
    Device.objects.filter(pk=device.pk).update(host_port=None)
    back = {"attachments": {str(device.pk): host.host_ports.get().pk}}
    plan = Plan.objects.create(title="Attach", tenant=tenant, wanted=back)
    assert (gpus(), gpus(plan=str(plan.pk))) == (1, 2)
    others = Plan.objects.create(title="Theirs", tenant=Tenant.objects.create(name="Elsewhere"), wanted=back)
    assert client.get(address, {"plan": str(others.pk)}).status_code == 404
    assert client.get(address, {"plan": "x"}).status_code == 400
    stranger = User.objects.create_user("mallory", tenant=others.tenant)
    client.force_login(stranger)
    assert client.get(address).status_code == 404


def test_the_page_shows_what_a_request_comes_to(client: Client, host: Host) -> None:
    assert b"node-1" in client.get(PAGE).content
    shown = client.post(PAGE, {"request": json.dumps(changed(SHORT, "/gpus", 2))}).content.decode()
    assert "Mixed precision" in shown
    assert "#SBATCH --gres=gpu:2" in shown
    file = client.post(PAGE, {"request": json.dumps(changed(SHORT, "/gpus", 2)), "file": "docker"})
    assert file["Content-Disposition"] == 'attachment; filename="Dockerfile"'
    assert file.content.startswith(b"# resnet50")


def test_neither_page_nor_log_has_a_secret(client: Client, host: Host) -> None:
    secret = "correct-horse-battery"
    request = changed(changed(SHORT, "/gpus", 2), "/environment", {"HF_TOKEN": secret})
    assert secret not in client.post(PAGE, {"request": json.dumps(request)}).content.decode()
    assert secret not in deployment_response(client, request).content.decode()
    broken = json.dumps(request)[:-1]
    answer = client.post(PAGE, {"request": broken})
    assert answer.status_code == 400
    assert secret not in answer.content.decode()
    assert secret not in client.post(API, broken, content_type="application/json").content.decode()
    entries = list(AuditEntry.objects.filter(action="deployment.make"))
    assert entries
    assert secret not in repr([one.record() for one in entries])


def test_a_page_says_which_fields_are_wrong(client: Client) -> None:
    answer = client.post(PAGE, {"request": '{"command": "true", "surprise": "<b>x</b>", "gpus": "<script>"}'})
    shown = answer.content.decode()
    assert answer.status_code == 400
    assert "/surprise" in shown
    assert '<script>"' not in shown
    assert "&lt;b&gt;x" in shown
    assert client.post(PAGE, {"request": ""}).status_code == 400


def test_a_job_is_described_by_fields_and_what_is_wrong_is_said_at_its_field(client: Client, host: Host) -> None:
    fields = {"command": "python train.py --batch {batch}", "workload": "resnet50", "scheduler": "slurm", "gpus": "2",
              "time": "12:00:00", "host": "node-1", "queue": ""}  # fmt: skip
    answer = client.post(PAGE, fields)
    shown = answer.content.decode()
    assert "#SBATCH --gres=gpu:2" in shown
    assert "Mixed precision" in shown
    kept = {one.name: one.value for one in answer.context["fields"]}
    assert {name: kept[name] for name in fields} == fields
    assert not answer.context["is_json"]
    wrong = client.post(PAGE, {**fields, "gpus": "two", "command": "", "workload": ""})
    assert wrong.status_code == 400
    errors = {one.name: one.error for one in wrong.context["fields"] if one.error}
    assert errors == {
        "command": "It is missing, and so is a workload: there is nothing to run.",
        "gpus": "A whole number from 1 to 64 is expected.",
    }
    assert b'<a href="#job-gpus">GPUs</a>' in wrong.content
    # What fields cannot say is JSON.
    assert client.post(PAGE, {"request": json.dumps(changed(SHORT, "/gpus", 2))}).context["is_json"]
    assert client.post(PAGE, {"request": "[1]"}).status_code == 400


def test_a_secret_in_a_field_is_not_shown_again(client: Client, host: Host) -> None:
    secret = "hf_" + "a1B2c3D4e5" * 4
    answer = client.post(PAGE, {"command": f"python train.py --token {secret}", "gpus": "none"})
    assert answer.status_code == 400
    assert secret not in answer.content.decode()
