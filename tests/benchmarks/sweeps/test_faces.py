"""Pages and the API of sweeps."""

from __future__ import annotations

import csv
import io
import json
import logging
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from accounts.audit.models import AuditEntry
from benchmarks.sweeps.models import Point, Sweep
from core.errors import Invalid
from tests.benchmarks.runs.lab import RunningLab
from tests.benchmarks.sweeps.test_manifest import FFDL, SECRET
from tests.benchmarks.sweeps.world import ask, settled

pytestmark = [pytest.mark.process, pytest.mark.with_agent]

MANIFEST = FFDL.replace("gpus: 2", "gpus: [1, 2]").replace("learners: 2", "learners: 1")
MANIFEST += "workload: mnist_cnn\ngrid:\n  same: {steps: 5, warmup: 1}\n"


@pytest.fixture
def client(lab: RunningLab) -> Client:
    """A browser of who asks."""
    client = Client()
    client.force_login(lab.person)
    return client


def post(client: Client, name: str, body: Any, *args: object, **headers: str) -> Any:
    """Send JSON to the API."""
    return client.post(reverse(name, args=args), json.dumps(body), content_type="application/json", headers=headers)


def content_of(answer: Any) -> str:
    """Return all that an answer has."""
    body: bytes = answer.getvalue() if answer.streaming else answer.content
    return body.decode() + repr(answer.headers)


def test_a_manifest_is_explained_and_run_and_its_password_is_nowhere(
    lab: RunningLab, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    beside = {"host": lab.host.pk, "placement": "local", "executor": "simulated"}
    answers = [client.post(reverse("sweeps:manifest"), {"text": MANIFEST, "look": "yes", **beside})]
    page = content_of(answers[0])
    assert answers[0].status_code == 200
    for words in ("data_stores", "neither names nor passwords are kept", "No core is reserved", "✓ used"):
        assert words in page
    wrong = MANIFEST.replace("memory: 1Gb", "memory: much")
    answers.append(client.post(reverse("sweeps:manifest"), {"text": wrong, "make": "yes", **beside}))
    assert answers[-1].status_code == 400
    assert "&#x27;memory&#x27; is a size such as 8Gb or 512MiB." in content_of(answers[-1])
    file = io.BytesIO(MANIFEST.encode())
    file.name = "manifest.yml"
    answers.append(client.post(reverse("sweeps:manifest"), {"file": file, "make": "yes", **beside}))
    sweep = Sweep.objects.get()
    assert answers[-1].headers["Location"] == reverse("sweeps:sweep", args=[sweep.pk])
    assert (sweep.title, Point.objects.count()) == ("tf_convolutional_network_tutorial", 2)
    body = {"manifest": MANIFEST, "grid": {"host": [lab.host.pk], "placement": ["local"]}}
    answers.append(post(client, "api:sweep_preview", body))
    assert {one["field"]: one["fate"] for one in answers[-1].json()["explained"]}["data_stores"] == "ignored"
    answers.append(post(client, "api:sweeps", {**body, "manifest": wrong}))
    assert answers[-1].status_code == 400
    assert answers[-1].json()["problems"][0]["line"] == 6
    answers.append(post(client, "api:sweeps", {**body, "manifest": MANIFEST.replace("password: ", "password: [")}))
    assert answers[-1].status_code == 400
    answers.append(client.get(reverse("sweeps:sweep", args=[sweep.pk])))
    answers.append(client.get(reverse("api:sweep", args=[sweep.pk])))
    assert "Convolutional network model" in content_of(answers[-1])
    assert not [one for one in answers if SECRET in content_of(one)]
    assert SECRET not in caplog.text
    assert AuditEntry.objects.filter(action__startswith="sweep.").count() >= 4
    for model in (AuditEntry, Sweep, Point):
        assert SECRET not in repr(list(model._default_manager.values()))


def test_the_form_counts_tells_what_is_wrong_and_asks(lab: RunningLab, client: Client) -> None:
    assert "No sweeps yet" in content_of(client.get(reverse("sweeps:sweeps")))
    form: dict[str, Any] = {
        "workload": "mnist_cnn", "host": lab.host.pk, "placement": "local", "count": ["1", "2", "32"],
        "batch_more": "24, 48", "executor": "simulated", "steps": "5",
    }  # fmt: skip
    counted = content_of(client.get(reverse("sweeps:count"), form))
    assert "<dd><strong>4</strong></dd>" in counted
    assert "node-a has 8 GPUs of its own; 32 would be needed." in counted
    assert "Batch: &#x27;few&#x27; is no whole number." in content_of(
        client.get(reverse("sweeps:count"), {**form, "batch_more": "few"})
    )
    refused = client.post(reverse("sweeps:sweep_add"), {**form, "repeats": "99"})
    assert refused.status_code == 400
    assert "Each point is run 1 to 50 times." in content_of(refused)
    assert 'value="24, 48"' in content_of(refused)
    began = client.post(reverse("sweeps:sweep_add"), form)
    assert began.status_code == 302
    page = content_of(client.get(began.headers["Location"]))
    assert "MNIST CNN by devices and batch" in page
    assert page.count('class="cell waiting"') == 4
    assert "No run has completed yet." in page
    assert client.post(reverse("sweeps:resume", args=[Sweep.objects.get().pk])).status_code == 302
    assert "Only a paused or halted sweep can be resumed" in content_of(client.get(began.headers["Location"]))


def test_what_a_sweep_keeps_is_english_whatever_its_maker_reads(lab: RunningLab) -> None:
    with translation.override("de"):
        sweep = ask(lab, count=[1, 32])
        with pytest.raises(Invalid):
            ask(lab, count=[32])
    assert {one["why"] for one in sweep.left_out} == {"node-a has 8 GPUs of its own; 32 would be needed."}
    assert "combinations is left out. node-a has 8 GPUs" in AuditEntry.objects.get(outcome="refused").sentence


def test_the_api_says_how_a_sweep_stands_and_what_it_has_shown(lab: RunningLab, client: Client) -> None:
    grid = ask(lab).grid
    Sweep.objects.all().delete()
    body = {"title": "=two batches", "grid": grid}
    answer = post(client, "api:sweeps", body, **{"Idempotency-Key": "once"})
    assert answer.status_code == 202
    again = post(client, "api:sweeps", body, **{"Idempotency-Key": "once"})
    assert again.headers["Location"] == answer.headers["Location"]
    assert post(client, "api:sweeps", {**body, "title": "x"}, **{"Idempotency-Key": "once"}).status_code == 422
    assert "colour" in post(client, "api:sweeps", {**body, "colour": 1}).json()["errors"]
    assert "batch" in post(client, "api:sweeps", {"grid": {**grid, "batch": ["x"]}}).json()["errors"]
    assert client.get(reverse("api:sweeps"), {"stat": "running"}).status_code == 400
    assert client.get(reverse("api:sweeps"), {"state": "asleep"}).status_code == 400

    sweep = settled(Sweep.objects.get())
    shown = client.get(answer.headers["Location"]).json()
    assert shown["runs"] == {
        "all": 2, "waiting": 0, "open": 0, "completed": 2, "failed": 0, "cancelled": 0, "skipped": 0,
    }  # fmt: skip
    assert shown["settled"] is True
    points = client.get(reverse("api:sweep_points", args=[sweep.pk])).json()
    assert [one["values"]["batch"] for one in points] == [8, 16]
    for one in points:
        assert one["provenance"] == "simulated"
        # The simulation is not the model: what it says may be outside of the interval.
        assert 0 < one["predicted"]["low"] < one["predicted"]["high"]
        assert one["step_seconds"]["value"] > 0
    assert post(client, "api:sweep_halt", None, sweep.pk).status_code == 409
    page = content_of(client.get(reverse("sweeps:sweep", args=[sweep.pk]), {"sort": "-samples_per_second"}))
    assert page.count('data-provenance="simulated"') == 2
    assert page.count('class="cell completed"') == 2
    for state in ("attic", "completed"):
        found = client.get(reverse("sweeps:sweep", args=[sweep.pk]), {"state": state})
        assert found.status_code == (200 if state == "completed" else 400)
    lines = list(csv.reader(io.StringIO(content_of(client.get(reverse("sweeps:sweeps_csv"))).split("{")[0])))
    assert lines[1][1] == "'=two batches"
    rows = list(
        csv.reader(io.StringIO(content_of(client.get(reverse("sweeps:points_csv", args=[sweep.pk]))).split("{")[0]))
    )
    assert [row[1] for row in rows[1:3]] == ["completed", "completed"]
