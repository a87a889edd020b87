"""Secrets are in no answer: not in files, reasons, errors, nor in the request that is shown again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.deploy.deployment import DeploymentRequestError
from benchmarks.deploy.redaction import is_secret_name, redact_secrets
from tests.benchmarks.deploy.requests import MODAK, SHORT, changed, made, text_of

SECRET = "correct-horse-battery"
PLACES: list[tuple[dict[str, Any], str, Any]] = [
    (SHORT, "/environment", {"HF_TOKEN": SECRET}),
    (SHORT, "/environment", {"db_password": SECRET, "OTHER": f"x{SECRET}"}),
    (SHORT, "/command", f"python train.py --api-key={SECRET}"),
    (SHORT, "/command", f"python train.py --token {SECRET} --x"),
    (SHORT, "/command", f"python train.py --token '{SECRET}'"),
    (SHORT, "/command", ["python", "train.py", "--wandb-api-key", SECRET]),
    (SHORT, "/command", f"env WANDB_API_KEY={SECRET} python train.py"),
    (SHORT, "/command", f"curl https://carol:{SECRET}@data.example/x"),
    (SHORT, "/password", SECRET),
    (SHORT, "/options", {"token": SECRET}),
    (MODAK, "/job/application/arguments", f"--secret {SECRET} --epochs 3"),
    (MODAK, "/job/application/build", {"src": f"https://carol:{SECRET}@a.example/x.git", "build_command": "make"}),
    (MODAK, "/job/application/build", {"src": "https://a.example/x.git", "build_command": f"make TOKEN={SECRET}"}),
    (MODAK, "/job/target/credentials", {"user": "carol", "password": SECRET}),
]


@pytest.mark.parametrize(("request_", "pointer", "value"), PLACES)
def test_no_answer_has_it(request_: dict[str, Any], pointer: str, value: Any) -> None:
    try:
        answer = repr(made(changed(request_, pointer, value)))
    except DeploymentRequestError as error:
        answer = repr((error.errors, error.notes, error.request))
    assert SECRET not in answer


@pytest.mark.parametrize(
    "token",
    ["hf_" + "a" * 30, "ghp_" + "b" * 36, "AKIA" + "C" * 16, "glpat-" + "d" * 20, "sk-" + "e" * 40,
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"],
)  # fmt: skip
def test_what_looks_like_a_token_is_one(token: str) -> None:
    found = made(changed(SHORT, "/command", f"python train.py --x {token}"))
    assert token not in repr(found)
    assert "TOKEN" in found.secrets


@pytest.mark.process
def test_the_script_wants_it_from_whoever_submits_it(tmp_path: Path) -> None:
    found = made({"command": f"printf %s --token={SECRET}", "scheduler": "bash"})
    assert found.secrets == {"TOKEN": "/command"}
    path = tmp_path / "job.sh"
    path.write_text(text_of(found, "bash"))
    without = subprocess.run(["bash", str(path)], env={"CONTAINER": ""}, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "Set TOKEN before the job starts" in without.stderr
    given = subprocess.run(
        ["bash", str(path)], env={"CONTAINER": "", "TOKEN": "a $(b)"}, capture_output=True, text=True, check=True
    )
    assert given.stdout == "--token=a $(b)"
    assert "#PBS -v TOKEN" in text_of(found, "torque")


def test_what_is_shown_again_comes_to_the_same() -> None:
    once = made(changed(SHORT, "/environment", {"HF_TOKEN": SECRET}))
    again = made(once.request)
    assert [one.text for one in again.files if one.kind == "apptainer"] == [text_of(once, "apptainer")]
    assert json.loads(once.request)["environment"] == {"HF_TOKEN": "${HF_TOKEN}"}


def test_two_secrets_of_one_name_are_two_variables() -> None:
    taken = redact_secrets(
        {"a": {"password": "first-one"}, "b": {"password": "second-one"}, "c": {"password": "first-one"}}
    )
    assert taken.names == {"PASSWORD": "/a/password", "PASSWORD_2": "/b/password"}
    assert taken.plain["c"]["password"] == "${PASSWORD}"


def test_text_that_is_no_json_is_not_shown_again() -> None:
    with pytest.raises(DeploymentRequestError) as error:
        made('{"password": "' + SECRET + '",')
    assert SECRET not in repr((error.value.errors, error.value.request))
    assert error.value.request == ""


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("password", True), ("HF_TOKEN", True), ("wandb-api-key", True), ("awsSecretAccessKey", True),
     ("Authorization", True), ("key", False),
     ("tokenizer", False), ("max_tokens", False), ("tokens_per_batch", False), ("author", False), ("batch", False),
     ("tokenizer_path", False), ("bypass", False), ("keys", False)],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str, is_one: bool) -> None:
    assert is_secret_name(name) is is_one
