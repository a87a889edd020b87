"""`python -m tests.benchmarks.figures.seed`: keeps a small study of runs in the database of a site that is at hand."""

from __future__ import annotations

import os
import sys

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
    django.setup()
    from tests.benchmarks.figures.making import lab_made

    sys.stdout.writelines(f"{run.pk}\n" for run in lab_made(None))
