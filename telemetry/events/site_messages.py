"""Messages of FalconWeb's own."""

from __future__ import annotations

from telemetry.events.words import OK, WARNING, Words

REGISTRIES: dict[str, dict[str, Words]] = {
    "FalconWeb": {
        "OperationBegun": (OK, "A change of hardware began: attach, detach, move, or a setting.", ""),
        "OperationDone": (
            OK,
            "A change of hardware ended; read back, it is as it was asked for.",
            "",
        ),
        "OperationFailed": (
            WARNING,
            "A change of hardware did not succeed.",
            "Open the operation: its steps say where it stopped and why.",
        ),
        "OperationCancelled": (OK, "Somebody cancelled a change of hardware before it was carried out.", ""),
        "OperationRolledBack": (OK, "What an operation had changed was taken back.", ""),
        "PlanBegun": (OK, "A plan is being carried out.", ""),
        "PlanDone": (OK, "All operations of a plan are done.", ""),
        "PlanStopped": (
            WARNING,
            "A plan stopped half-way and waits for a decision.",
            "Open the plan and resume it, roll it back, or leave things as they are.",
        ),
        "PlanCancelled": (OK, "Somebody cancelled a plan.", ""),
        "PlanRolledBack": (OK, "A plan was rolled back: what it had changed is as it was before.", ""),
        "PlanLeft": (OK, "A plan that stopped was left as it is: half of it is done.", ""),
        "SignedIn": (OK, "A person signed in.", ""),
        "SignedOut": (OK, "A person signed out.", ""),
        "SignInRefused": (
            WARNING,
            "Somebody tried to sign in and was refused. Repeated tries within a minute are one event.",
            "If it was not the person, look in the audit log where the tries came from.",
        ),
        "LeaseGiven": (OK, "A tenant holds devices or host ports from now on.", ""),
        "LeaseEnded": (OK, "A lease ended: what was held went back to the free pool.", ""),
        "ChassisAdded": (OK, "An administrator added a chassis to this site.", ""),
        "ChassisRemoved": (WARNING, "An administrator removed a chassis from this site. Its events stay.", ""),
        "ExportTest": (OK, "An administrator tried the target of an event export.", ""),
        "DriftNoticed": (
            WARNING,
            "Something is not as it was approved: somebody changed it past this site.",
            "Open the drift and accept what was found, or re-apply what was approved.",
        ),
        "DriftEnded": (OK, "What had differed from the approved state does so no more.", ""),
        "ExportFailed": (
            WARNING,
            "A run of an export failed.",
            "Open the run: it says why. Mend that and resume it; it goes on where it stopped.",
        ),
        "RunCompleted": (OK, "A run of a benchmark has ended, and its figures are kept.", ""),
        "RunFailed": (
            WARNING,
            "A run of a benchmark failed, or its devices were not given back.",
            "Open the run: it says why, and has the log. Devices are given back from there, too.",
        ),
        "RunCancelled": (OK, "Somebody cancelled a run of a benchmark.", ""),
        "EventsLost": (
            WARNING,
            "The log of a BMC no longer had the entries that followed the last one that was read.",
            "Nothing brings them back. Look whether this site or the BMC was away for long at that time.",
        ),
        "EventsMayBeLost": (
            WARNING,
            "The log of a BMC was emptied, or began anew, while this site was not listening.",
            "Look whether this site or the BMC was away at that time, and who may empty the log.",
        ),
        "LinkWorse": (
            WARNING,
            "A PCIe link is worse than before: down, narrower or slower than it can be, or with too many errors.",
            "Open the link: its reasons say what to look at.",
        ),
        "LinkBetter": (OK, "A PCIe link is better than before.", ""),
        "AlertFiring": (WARNING, "A reading broke a rule for longer than its hold time.", "Open the alert."),
        "AlertAcknowledged": (OK, "Somebody took notice of an alert.", ""),
        "AlertResolved": (OK, "What had raised an alert is over.", ""),
    }
}
