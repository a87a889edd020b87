"""What a host says of its PyTorch follows what is installed."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from agent.runs import launch
from agent.runs.launch import PyTorchProbe
from trainer import __file__ as trainer_file

pytestmark = pytest.mark.process
CODE = Path(trainer_file).parents[1]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The folder of packages of a Python of its own, which has msgspec and no PyTorch."""
    venv.create(tmp_path / "python", symlinks=True)
    found: Path = next(tmp_path.glob("python/lib/*/site-packages"))
    (found / "msgspec.py").touch()
    return found


@pytest.fixture
def probe(packages: Path) -> PyTorchProbe:
    return PyTorchProbe(str(packages.parents[2] / "bin/python"), CODE)


def install(packages: Path) -> None:
    for name in ("torch", "torch-9.1.dist-info"):
        (packages / name).mkdir()
    (packages / "torch/__init__.py").touch()
    (packages / "torch/version.py").write_text("__version__ = '9.1'\ncuda: str = '13.0'\n")
    (packages / "torch-9.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.1\n")


def test_an_installed_and_a_removed_pytorch_show_at_the_next_report(packages: Path, probe: PyTorchProbe) -> None:
    assert "has no torch" in probe.installation().absent
    install(packages)
    assert (probe.installation().version, probe.installation().cuda) == ("9.1", "13.0")
    (packages / "torch").rename(packages / "no-torch")
    assert "has no torch" in probe.installation().absent


def test_python_is_not_started_at_each_report(packages: Path, probe: PyTorchProbe) -> None:
    install(packages)
    found = probe.installation()
    # It would not start.
    (packages.parents[2] / "bin/python").unlink()
    assert probe.installation() is found


def test_a_half_installed_pytorch_is_probed_again_soon(
    packages: Path, probe: PyTorchProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "PROBE_RETRY_SECONDS", 0.0)
    install(packages)
    (packages / "torch/version.py").rename(packages / "torch/later.py")
    assert "cannot be checked" in probe.installation().absent
    # Nothing changes in the folder of packages itself.
    (packages / "torch/later.py").rename(packages / "torch/version.py")
    assert probe.installation().version == "9.1"
