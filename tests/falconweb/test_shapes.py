"""Shapes that several threads read for the first time at once, in processes of their own: what goes wrong ends them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

HOME = Path(__file__).resolve().parents[2]
AT_ONCE = """
    import sys, threading
    import msgspec
    {begin}
    sys.setswitchinterval(1e-6)
    together = threading.Barrier(8)

    def read():
        together.wait()
        for shape in shapes:
            try:
                msgspec.convert({{}}, shape)
            except msgspec.ValidationError:
                pass

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(shapes))
"""
# As web processes begin, and workers.
SITE = """
    import falconweb.asgi
    from hostwire.protocol import known
    from benchmarks.model.topology import Topology
    shapes = [*known(), Topology]
"""
WORKER = """
    import os
    os.environ["DJANGO_SETTINGS_MODULE"] = "falconweb.settings"
    import django
    django.setup()
    from celery.signals import worker_init
    from falconweb.celery import application
    application.loader.import_default_modules()
    worker_init.send(sender=None)
    from hostwire.protocol import known
    from benchmarks.model.topology import Topology
    shapes = [*known(), Topology]
"""


@pytest.mark.nightly
@pytest.mark.parametrize("begin", [SITE, WORKER])
def test_shapes_are_read_by_many_threads_at_once(begin: str, tmp_path: Path) -> None:
    script = textwrap.dedent(AT_ONCE).format(begin=textwrap.dedent(begin))
    surroundings = {
        "PYTHONPATH": str(HOME),
        "FALCONWEB_DATA": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "DJANGO_SETTINGS_MODULE": "falconweb.settings",
    }
    for _ in range(5):
        found = subprocess.run(
            [sys.executable, "-c", script], env=surroundings, capture_output=True, text=True, check=False, timeout=60
        )
        assert found.returncode == 0, (found.returncode, found.stderr[-2000:])
        assert int(found.stdout) >= 80
