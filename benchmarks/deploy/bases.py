"""Base images of containers, and the build of PyTorch that runs on a target: its architecture, GPUs and driver."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from core.language import _, join_words

Architecture = Literal["x86_64", "aarch64", "ppc64le"]
ARCHITECTURES: Final[tuple[Architecture, ...]] = ("x86_64", "aarch64", "ppc64le")
ARCHITECTURE_WORDS: Final[dict[str, Architecture]] = {
    "x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64", "ppc64le": "ppc64le",
    "ppc64el": "ppc64le", "powerpc64le": "ppc64le",
}  # fmt: skip
WHEEL_IMAGE: Final = "python:3.11-slim-bookworm"
DEBIAN_IMAGE: Final = "debian:trixie-slim"


@dataclass(frozen=True, kw_only=True)
class PytorchBuild:
    """A build of PyTorch and the image that it is installed in.

    `cuda` is the toolkit that it brings, '' for none; it needs a `driver` of at least this version. `capabilities` are
    the compute capabilities that it has code for, which runs on later ones of the same first number. `is_wheel`: pip
    installs it, else it is Debian's package. `source` is where these facts are from.
    """

    version: str
    image: str
    architectures: tuple[Architecture, ...]
    cuda: str = ""
    driver: str = ""
    capabilities: tuple[float, ...] = ()
    is_wheel: bool = True
    source: str

    def runs_on(self, capability: float) -> bool:
        return any(int(one) == int(capability) and one <= capability for one in self.capabilities)


WHEEL_METADATA: Final = "the wheels' metadata"
CUDA_COMPATIBILITY: Final = "NVIDIA's CUDA compatibility"
# Newest first. Drivers: NVIDIA, CUDA compatibility, minor version compatibility.
BUILDS: Final = (
    PytorchBuild(
        version="2.14.1", image=WHEEL_IMAGE, architectures=("x86_64", "aarch64"), cuda="13.0", driver="580.65.06",
        capabilities=(7.5, 8.0, 8.6, 9.0, 10.0, 12.0),
        source=f"{WHEEL_METADATA}; NVIDIA's release notes of CUDA 13.0",
    ),
    PytorchBuild(
        version="2.8.0", image=WHEEL_IMAGE, architectures=("x86_64",), cuda="12.8", driver="525.60.13",
        capabilities=(7.5, 8.0, 8.6, 9.0, 10.0, 12.0),
        source=f"{WHEEL_METADATA}; PyTorch's announcement of 2.8; {CUDA_COMPATIBILITY}",
    ),
    PytorchBuild(
        version="2.6.0", image=WHEEL_IMAGE, architectures=("x86_64",), cuda="12.4", driver="525.60.13",
        capabilities=(5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0),
        source=f"{WHEEL_METADATA}; PyTorch's release matrix; {CUDA_COMPATIBILITY}",
    ),
    PytorchBuild(
        version="2.6.0", image=DEBIAN_IMAGE, architectures=("ppc64le",), is_wheel=False,
        source="Debian 13, package python3-torch (architectures)",
    ),
    PytorchBuild(
        version="2.4.0", image=WHEEL_IMAGE, architectures=("x86_64",), cuda="12.1", driver="525.60.13",
        capabilities=(5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0),
        source=f"{WHEEL_METADATA}; PyTorch's release matrix; {CUDA_COMPATIBILITY}",
    ),
    PytorchBuild(
        version="1.13.1", image=WHEEL_IMAGE, architectures=("x86_64",), cuda="11.7", driver="450.80.02",
        capabilities=(3.7, 5.0, 6.0, 7.0, 7.5, 8.0, 8.6),
        source=f"{WHEEL_METADATA}; PyTorch's release matrix; {CUDA_COMPATIBILITY}",
    ),
)  # fmt: skip
# NVIDIA, CUDA GPUs and their compute capabilities; by a word of the model's name.
CAPABILITIES: Final = {
    "K80": 3.7, "P100": 6.0, "P40": 6.1, "P4": 6.1, "V100": 7.0, "V100S": 7.0, "T4": 7.5, "2080": 7.5, "A100": 8.0,
    "A30": 8.0, "A10": 8.6, "A40": 8.6, "A6000": 8.6, "3090": 8.6, "L4": 8.9, "L40": 8.9, "L40S": 8.9, "4090": 8.9,
    "H100": 9.0, "H200": 9.0, "GH200": 9.0, "B200": 10.0, "GB200": 10.0, "5090": 12.0,
}  # fmt: skip
AMD_WORDS: Final = re.compile(r"MI\d{2,3}[AX]?|INSTINCT|RADEON|AMD", re.ASCII)
VERSION_PARTS: Final = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What is known of where a container is to run: '' where unknown. `models` are those of its accelerators."""

    architecture: Architecture | Literal[""] = ""
    driver: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BaseChoice:
    """The base of a container: its build of PyTorch, None where no image of this site covers the target.

    `version` is what is installed, '' without a build; `reasons` are sentences.
    """

    build: PytorchBuild | None
    version: str = ""
    reasons: tuple[str, ...] = ()


def compute_capability(model: str) -> float | None:
    """Return the compute capability of an NVIDIA GPU by its model; None where it is unknown."""
    return next((CAPABILITIES[word] for word in _model_words(model) if word in CAPABILITIES), None)


def architecture_of(text: str) -> Architecture | Literal[""]:
    """Return the architecture that the name of a kernel or system has: '6.1.0-13-amd64', '5.14.0.el9.aarch64'."""
    words = re.split(r"[^a-z0-9_]+", text.lower())
    return next((ARCHITECTURE_WORDS[word] for word in words if word in ARCHITECTURE_WORDS), "")


def is_amd(model: str) -> bool:
    return any(AMD_WORDS.fullmatch(word) for word in _model_words(model))


def choose_base(facts: TargetFacts, version: str = "", *, gpus: bool = False) -> BaseChoice:
    """Return the newest build for a target, or the requested version of it.

    `gpus`: the job uses GPUs. Unknown facts restrict nothing, and the reasons say what was assumed.
    """
    if any(map(is_amd, facts.models)):
        return BaseChoice(build=None, reasons=(_("AMD GPUs are not covered: name an image with PyTorch for ROCm."),))
    architecture = facts.architecture or "x86_64"
    models = facts.models if gpus else ()
    reasons = _assumptions(facts, gpus=gpus)
    found = [one for one in BUILDS if architecture in one.architectures and (one.cuda or not gpus)]
    if not found:
        sentence = _(
            "NVIDIA GPUs on {architecture} are not covered: PyTorch has no such build. Name an image that has one.",
            architecture=architecture,
        )
        return BaseChoice(build=None, reasons=(sentence,))
    if version:
        return _requested_base(found, facts, models, version, reasons, gpus=gpus)
    fitting = [one for one in found if not _objections(one, facts, models)]
    if not fitting:
        return BaseChoice(build=None, reasons=tuple(_objections(found[-1], facts, models)))
    chosen = fitting[0]
    newer = _objections(found[0], facts, models)[:1] if chosen is not found[0] else []
    return BaseChoice(
        build=chosen, version=chosen.version, reasons=(_fact_sentence(chosen, gpus=gpus), *newer, *reasons)
    )


def _requested_base(
    found: list[PytorchBuild],
    facts: TargetFacts,
    models: tuple[str, ...],
    version: str,
    reasons: tuple[str, ...],
    *,
    gpus: bool,
) -> BaseChoice:
    known = next((one for one in found if f"{one.version}.".startswith(f"{version}.")), None)
    if known is None:
        sentence = _("PyTorch {version}: nothing is known of the drivers and GPUs it needs.", version=version)
        return BaseChoice(build=found[0], version=version, reasons=(sentence, *reasons))
    objections = _objections(known, facts, models)
    return BaseChoice(build=known, version=version, reasons=(_fact_sentence(known, gpus=gpus), *objections, *reasons))


def _fact_sentence(build: PytorchBuild, *, gpus: bool) -> str:
    if not build.cuda:
        return _(
            "PyTorch {version} of {image} has no CUDA. Source: {source}.",
            version=build.version, image=build.image, source=build.source,
        )  # fmt: skip
    if not gpus:
        return ""
    return _(
        "PyTorch {version} brings CUDA {cuda}, which needs driver {driver} or newer, and has code for compute "
        "capability {capabilities}. Sources: {source}.",
        version=build.version,
        cuda=build.cuda,
        driver=build.driver,
        capabilities=", ".join(map(str, build.capabilities)),
        source=build.source,
    )


def _objections(build: PytorchBuild, facts: TargetFacts, models: Iterable[str]) -> list[str]:
    """Return why a build does not run on a target, a sentence each."""
    found: list[str] = []
    if models and facts.driver and _version_number(facts.driver) < _version_number(build.driver):
        found.append(
            _(
                "PyTorch {version} needs driver {driver} or newer, and the host has {has}.",
                version=build.version, driver=build.driver, has=facts.driver,
            )
        )  # fmt: skip
    wrong = [one for one in dict.fromkeys(models) if (has := compute_capability(one)) and not build.runs_on(has)]
    if wrong:
        found.append(
            _(
                "PyTorch {version} has no code for {models} (compute capability {capability}).",
                version=build.version, models=join_words(wrong), capability=compute_capability(wrong[0]),
            )
        )  # fmt: skip
    return found


def _assumptions(facts: TargetFacts, *, gpus: bool) -> tuple[str, ...]:
    found: list[str] = [] if facts.architecture else [_("The architecture of the host is unknown: x86_64 is assumed.")]
    if gpus and not facts.driver:
        found.append(_("The driver of the host is unknown: compare it with what is said here."))
    unknown = [one for one in dict.fromkeys(facts.models) if compute_capability(one) is None] if gpus else []
    if unknown:
        found.append(_("The compute capability of {models} is unknown.", models=join_words(unknown)))
    return tuple(found)


def _version_number(text: str) -> tuple[int, ...]:
    found = VERSION_PARTS.match(text.strip())
    return tuple(int(one) for one in found[0].split(".")) if found else ()


def _model_words(model: str) -> list[str]:
    return re.split(r"[^A-Z0-9]+", model.upper())
