"""First start: the administrator, and the simulated chassis and hosts that `make up` started."""

from __future__ import annotations

import json
import os
import secrets
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand

from accounts.audit.actions import Action
from accounts.audit.services import Target, audited, target_of
from accounts.models import Role, User
from fabric.agents.models import HostAgent
from fabric.agents.services import agent_register
from fabric.inventory.models import Chassis, Host
from falconweb.config import Config


class Command(BaseCommand):
    """Creates the missing requirements of a start; idempotent."""

    help = "Create the first administrator (the password is printed once) and register what is simulated."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        self._administrator()
        for simulated in json.loads(os.environ.get("FALCONWEB_SIMULATED_CHASSIS", "[]")):
            self._simulated(simulated)
        for host in json.loads(os.environ.get("FALCONWEB_SIMULATED_HOSTS", "[]")):
            self._agent(host)

    def _administrator(self) -> None:
        if User.objects.filter(role=Role.ADMINISTRATOR, is_active=True).exists():
            return
        # `make up` gives it to this process, and has loaded the settings without it.
        given = Config.from_environment().admin_password
        password = given or secrets.token_urlsafe(12)
        with audited(Action.PERSON_ADD, actor=None, target=Target("person", name="administrator")) as act:
            person = User.objects.create_superuser("administrator", password=password)
            act.target, act.after = target_of(person), {"username": person.username, "role": person.role}
        if given:
            try:
                validate_password(given)
            except ValidationError as error:
                self.stdout.write(f"FALCONWEB_ADMIN_PASSWORD is weak: {' '.join(error.messages)}")
            self.stdout.write("Created the administrator with the password of FALCONWEB_ADMIN_PASSWORD.")
        else:
            self.stdout.write(f"Sign in as administrator with the password {password} (shown this once).")

    def _simulated(self, simulated: dict[str, str]) -> None:
        chassis = Chassis.objects.filter(name=simulated["name"]).first()
        if chassis is None:
            if Chassis.objects.filter(url=simulated["url"]).exists():
                return
            chassis = Chassis(name=simulated["name"])
        elif not chassis.url.startswith("https://127.0.0.1:"):
            return  # a real chassis has this name
        chassis.url, chassis.username = simulated["url"], "administrator"
        chassis.fingerprint = simulated["fingerprint"]
        chassis.set_password(simulated["password"])
        chassis.save()

    def _agent(self, simulated: dict[str, str]) -> None:
        # The first walk may follow later: it finds the host by its identity.
        host, _ = Host.objects.get_or_create(identity=simulated["identity"], defaults={"name": simulated["name"]})
        known = HostAgent.objects.filter(host=host).first()
        if known is None or known.key != simulated["key"]:
            agent_register(host=host, key=simulated["key"])
