"""A real Slurm of two nodes with eight GPUs each, on this machine: its GPUs are device files of nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from falconweb.launch.broker import free_port
from tests.waiting import wait_for

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
NODES, GPUS, CORES = 2, 8, 64
NULL = os.makedev(1, 3)


def why_no_slurm() -> str:
    """Return why no Slurm can be started here, '' where one can."""
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"Slurm is not installed: {', '.join(absent)} (Debian: slurmctld, slurmd, slurm-client)."
    return "" if os.geteuid() == 0 else "Slurm starts jobs as their owners: that takes root."


class Slurm:
    """The controller and the daemons of the nodes, in a folder of their own; they end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        state = self.folder / "state"
        state.mkdir()
        ports = [free_port() for _ in range(NODES + 1)]
        for number in range(GPUS):
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o600, NULL)
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n")
        (self.folder / "slurm.conf").write_text(
            "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n"
            "SlurmUser=root\nSlurmdUser=root\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n"
            "SelectType=select/cons_tres\nGresTypes=gpu\nCommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nSlurmdParameters=config_overrides\nReturnToService=2\n"
            "JobAcctGatherType=jobacct_gather/none\nMailProg=/bin/true\nMpiDefault=none\n"
            f"SlurmctldPort={ports[0]}\nStateSaveLocation={state}\nSlurmctldPidFile={self.folder}/controller.pid\n"
            f"SlurmdSpoolDir={self.folder}/spool.%n\nSlurmdPidFile={self.folder}/%n.pid\n"
            + "".join(
                f"NodeName=node-{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={CORES} "
                f"RealMemory=256000 Gres=gpu:{GPUS}\n"
                for number, port in enumerate(ports[1:], start=1)
            )
            + "PartitionName=batch Nodes=ALL Default=YES State=UP\n"
        )
        try:
            self._start("slurmctld", "-D")
            for number in range(1, NODES + 1):
                (self.folder / f"spool.node-{number}").mkdir()
                self._start("slurmd", "-D", "-N", f"node-{number}")
            wait_for(self._is_there, self._logs)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        end = time.monotonic() + 10
        for process in self._processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs."""
        surroundings = {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.folder / "slurm.conf"), **variables}
        return subprocess.run(
            command, env=surroundings, cwd=self.folder, capture_output=True, text=True, check=False, timeout=30
        )

    def _start(self, *command: str) -> None:
        with (self.folder / f"log-{len(self._processes)}").open("wb") as log:
            surroundings = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
            process = subprocess.Popen(command, env=surroundings, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)

    def _is_there(self) -> bool:
        return self.ask("sinfo", "--noheader", "--format=%D %t").stdout.split() == [str(NODES), "idle"]

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("log-*")))
