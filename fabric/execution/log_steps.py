"""The steps of collecting the logs of a BMC: nothing changes there, and a worker that takes over begins anew."""

from __future__ import annotations

import re
from functools import partial

import msgspec
from django.utils import timezone

from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.diagnostics import collect_diagnostics, find_log_sources, log_entries
from fabric.bmc.values import JsonObject, integer
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.permission import check_still_allowed
from fabric.maintenance.files import MAX_LOG_BYTES, IncomingFile
from fabric.maintenance.services import collected_log_store

LOGS_SECONDS = 1800.0
SILENCE_SECONDS = 60.0


async def collect_logs(claim: OperationClaim, bmc: BmcClient) -> None:
    """Collect the diagnostic data of a BMC, or the entries of its log, into a file of the site."""
    part = claim.operation.managed_part
    if part is None:
        raise OperationFailedError(gettext_noop("The part is gone from the site."))
    async with claim.step("Check"):
        await run_in_thread(check_still_allowed, claim.operation)
        sources = await claim.retry(partial(find_log_sources, bmc, part.uri))
        if not sources:
            raise OperationFailedError(gettext_noop("Its BMC has no log."))
        source = sources[0]
    data_uri = ""
    if source.target:
        async with claim.step("Collect") as step:

            async def progress(body: JsonObject) -> None:
                if (percent := integer(body, "PercentComplete")) is not None and step["sentence"] != f"{percent} %":
                    step["sentence"] = f"{percent} %"
                    await claim.save()
                await claim.check_cancelled()

            data_uri = await collect_diagnostics(bmc, source, progress)
            step["sentence"] = ""
    else:
        claim.skip("Collect", gettext_noop("Its service collects no diagnostic data: its log entries are taken."))
    async with claim.step("Download") as step:
        with IncomingFile(MAX_LOG_BYTES) as file:
            if data_uri:
                async for chunk in bmc.download(bmc.own_path(data_uri), most=MAX_LOG_BYTES, silence=SILENCE_SECONDS):
                    file.write(chunk)
            for each in [] if data_uri else sources:
                async for entry in log_entries(bmc, each.entries_uri):
                    file.write(msgspec.json.encode(entry) + b"\n")
                    await claim.check_cancelled()
            file.end()
            await claim.check_held()
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{claim.operation.chassis.name}-{part.name}")
            name = f"{stem}-{timezone.now():%Y%m%dT%H%M%SZ}.{'dump' if data_uri else 'jsonl'}"
            await run_in_thread(partial(collected_log_store, operation=claim.operation, file=file, name=name))
            step["sentence"] = f"{name}, {file.size} bytes."
