"""Command handling: only authentic commands are carried out, each once, and each is answered in every case."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from agent.drain import drain, restore
from agent.journal import Journal, JournalEntry, JournalError
from agent.machine import DeviceLookupError, Machine
from agent.outbox import AgentOutbox
from agent.report import HostReporter
from agent.rescan import rescan
from agent.runs.launch import RunRefusedError
from agent.runs.manager import RunManager
from agent.settings import Settings
from agent.step_execution import CommandEndedError, StepError, StepLog, StepTimeoutError
from hostwire.protocol import (
    MAX_WAIT,
    Command,
    CommandAnswer,
    DeviceSelector,
    DrainRequest,
    HoldersRequest,
    Outcome,
    ReportRequest,
    Request,
    RescanRequest,
    RestoreRequest,
    TrainDeleteRequest,
    TrainPollRequest,
    TrainRequest,
    TrainStopRequest,
)
from hostwire.signing import ExpiredError, WireError, open_command, seal_answer, seal_report

logger = logging.getLogger(__name__)


class CommandHandler:
    """Carries out the commands of one host and sends its reports."""

    def __init__(
        self, settings: Settings, machine: Machine, journal: Journal, outbox: AgentOutbox, runs: RunManager
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._journal = journal
        self._outbox = outbox
        self._runs = runs
        self._reporter = HostReporter(settings, machine, runs)
        self._reporting = threading.Lock()
        self._lock = threading.Lock()
        self._busy: dict[str, str] = {}
        self._problems: deque[str] = deque(maxlen=5)
        self.ending = threading.Event()

    def start(self) -> None:
        """Answer the commands that an earlier agent of this host left unanswered, and start reporting."""
        for entry in self._journal.entries():
            if not entry.answer:
                now = time.time()
                sentence = "The agent was restarted during the command. Request the devices of the host again."
                self._answer(
                    CommandAnswer(self._settings.host, entry.nonce, entry.task, "interrupted", sentence, now, now)
                )
            elif not entry.sent:
                self._outbox.answer(entry.nonce, entry.answer)
        threading.Thread(target=self._report_loop, name="reports", daemon=True).start()

    def handle(self, task: str, text: object) -> None:
        """Carry out the command in a message of this task, and answer it. Raises nothing."""
        try:
            command = open_command(text, self._settings.key, identity=self._settings.host)
        except ExpiredError as error:
            self._handle_expired(error)
            return
        except WireError as error:
            # The sender is not authenticated, so there is no answer.
            self._refuse(str(error))
            return
        if command.task != task:
            self._refuse(f"A command {command.task} came as {task}.")
            return
        if isinstance(command.request, TrainPollRequest):
            # Read-only, so repeats are harmless: journal entries for the many polls would fill it.
            self._answer(self._carry_out(command), recorded=False)
            return
        try:
            known = self._journal.begin(command.nonce, command.task, command.expires + MAX_WAIT)
        except JournalError as error:
            self._answer(_refusal(command, f"The agent cannot write its journal: {error}."))
            return
        if known is not None:
            self._repeat_answer(known)
            return
        logger.info("%s %s begins", command.task, command.nonce)
        answer = self._carry_out(command)
        logger.info("%s %s: %s. %s", command.task, command.nonce, answer.outcome, answer.sentence)
        self._answer(answer)
        self.report()

    def report(self) -> None:
        """Read the state of the host and send it as a report."""
        with self._reporting:
            try:
                self._runs.clean_up()
                report = self._reporter.read(busy=sorted(self._busy.values()), problems=list(self._problems))
                self._outbox.report(seal_report(report, self._settings.key))
            except Exception:
                logger.exception("The report failed")

    def _report_loop(self) -> None:
        while not self.ending.is_set():
            self.report()
            self.ending.wait(self._settings.period)

    def _carry_out(self, command: Command) -> CommandAnswer:
        step_log, began = StepLog(), time.time()
        place = _exclusive_device(command.request)
        with self._lock:
            under_way = self._busy.get(place) if place else None
            if under_way is None:
                self._busy[place or command.nonce] = f"{command.task} {place}".strip()
        if under_way is not None:
            return _answer_of(command, "refused", f"Another command uses this device: {under_way}.", began, step_log)
        try:
            outcome, sentence = self._do(command.request, step_log)
        except CommandEndedError as error:
            outcome, sentence = error.outcome, error.sentence
        except RunRefusedError as error:
            outcome, sentence = "refused", str(error)
        except DeviceLookupError as error:
            outcome, sentence = ("refused" if error.several else "not_present"), str(error)
        except StepTimeoutError as error:
            outcome, sentence = "timed_out", f"The step '{_last_step(step_log)}' {error}."
        except StepError as error:
            outcome, sentence = "failed", f"The step '{_last_step(step_log)}' failed: {error}."
        except Exception as error:
            logger.exception("A command failed")
            outcome, sentence = "failed", f"The agent failed ({type(error).__name__}); see its log."
        finally:
            with self._lock:
                self._busy.pop(place or command.nonce, None)
        return _answer_of(command, outcome, sentence, began, step_log)

    def _do(self, request: Request, step_log: StepLog) -> tuple[Outcome, str]:
        result: tuple[Outcome, str]
        match request:
            case ReportRequest():
                result = "done", "The report follows."
            case HoldersRequest():
                result = self._read_holders(request.device, step_log)
            case DrainRequest():
                result = drain(self._machine, request, step_log, wait_for=self.ending.wait)
            case RescanRequest():
                result = rescan(self._machine, request, step_log, wait_for=self.ending.wait)
            case RestoreRequest():
                search = RescanRequest((request.device,), request.wait, known=())
                result = rescan(self._machine, search, step_log, wait_for=self.ending.wait)
                if result[0] == "seen":
                    restore(self._machine, request.device, step_log)
            case TrainRequest():
                result = self._runs.start(request)
            case TrainPollRequest():
                step_log.news = self._runs.poll(request)
                result = "done", step_log.news.sentence or "It runs."
            case TrainStopRequest():
                result = self._runs.stop(request, self.ending.wait)
            case TrainDeleteRequest():
                result = self._runs.delete(request)
        return result

    def _read_holders(self, selector: DeviceSelector, step_log: StepLog) -> tuple[Outcome, str]:
        found = step_log.run("look", lambda: self._machine.find(selector))
        step_log.devices = [found]
        functions = self._machine.functions(found.address)
        held = step_log.run("holders", lambda: self._machine.holders(functions))
        step_log.holders = tuple(holder for address in functions for holder in held.holders[address])
        unseen = f" The open files of {held.unseen} processes cannot be read." if held.unseen else ""
        return "done", f"{found.address} has {len(step_log.holders)} holders.{unseen}"

    def _handle_expired(self, error: ExpiredError) -> None:
        command = error.message
        if isinstance(command, Command):
            known = self._journal.entry(command.nonce)
            if known is None:
                self._answer(_refusal(command, str(error)))
            else:
                self._repeat_answer(known)

    def _repeat_answer(self, known: JournalEntry) -> None:
        if known.answer:
            self._outbox.answer(known.nonce, known.answer)

    def _refuse(self, sentence: str) -> None:
        logger.warning("A message was refused: %s", sentence)
        self._problems.append(f"A message was refused: {sentence}")

    def _answer(self, answer: CommandAnswer, *, recorded: bool = True) -> None:
        try:
            text = seal_answer(answer, self._settings.key)
        except WireError as error:
            logger.warning("%s", error)
            return
        try:
            if recorded:
                self._journal.record_answer(answer.nonce, text)
        except JournalError as error:
            logger.warning("%s", error)
        self._outbox.answer(answer.nonce, text)


def _answer_of(command: Command, outcome: Outcome, sentence: str, began: float, step_log: StepLog) -> CommandAnswer:
    return CommandAnswer(
        host=command.host,
        nonce=command.nonce,
        task=command.task,
        outcome=outcome,
        sentence=sentence,
        began=began,
        ended=time.time(),
        devices=tuple(step_log.devices),
        holders=step_log.holders,
        cut_off=step_log.cut_off if outcome not in ("refused", "in_use") else (),
        steps=tuple(step_log.steps),
        news=step_log.news,
    )


def _refusal(command: Command, sentence: str) -> CommandAnswer:
    return _answer_of(command, "refused", sentence, time.time(), StepLog())


def _exclusive_device(request: Request) -> str:
    """Return the device that only one command at a time may use, as the command names it."""
    if isinstance(request, DrainRequest | RestoreRequest):
        selector = request.device
        return (selector.serial or selector.address or f"{selector.vendor_id}:{selector.device_id}").casefold()
    return ""


def _last_step(step_log: StepLog) -> str:
    return step_log.steps[-1].name if step_log.steps else "look"
