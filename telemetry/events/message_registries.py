"""Texts and severities of messages by registry: FalconWeb's own, Fabric, platform, service."""

from __future__ import annotations

from typing import Final, Literal

from core.language import gettext_noop as _  # translated where a reader asks for it

SeverityName = Literal["OK", "Warning", "Critical"]
# Severity, explanation, advice.
MessageText = tuple[SeverityName, str, str]

OK: Final[SeverityName] = "OK"
WARNING: Final[SeverityName] = "Warning"
CRITICAL: Final[SeverityName] = "Critical"

SITE: dict[str, MessageText] = {
    "OperationBegun": (OK, _("A change of hardware began: attach, detach, move, or a setting."), ""),
    "OperationDone": (OK, _("A change of hardware is done and was verified by reading it back."), ""),
    "OperationFailed": (
        WARNING,
        _("A change of hardware did not succeed."),
        _("Open the operation: its steps say where it stopped and why."),
    ),
    "OperationCancelled": (OK, _("A change of hardware was cancelled before it started."), ""),
    "OperationRolledBack": (OK, _("The changes of an operation were rolled back."), ""),
    "PlanBegun": (OK, _("A plan is being carried out."), ""),
    "PlanDone": (OK, _("All operations of a plan are done."), ""),
    "PlanStopped": (
        WARNING,
        _("A plan stopped before its end and waits for a decision."),
        _("Open the plan and resume it, roll it back, or leave things as they are."),
    ),
    "PlanCancelled": (OK, _("A plan was cancelled."), ""),
    "PlanRolledBack": (OK, _("A plan was rolled back: its changes were reverted."), ""),
    "PlanLeft": (OK, _("A plan that had stopped was left partly done."), ""),
    "SignedIn": (OK, _("A person signed in."), ""),
    "SignedOut": (OK, _("A person signed out."), ""),
    "AuditEntry": (OK, _("An entry of the audit log; `arguments` has all of it."), ""),
    "SignInRefused": (
        WARNING,
        _("A sign-in was refused. Repeated attempts within a minute are one event."),
        _("If it was not the person, check in the audit log where the attempts came from."),
    ),
    "BreakGlassUsed": (
        CRITICAL,
        _("The local administrator for emergencies signed in with a password."),
        _("If nobody of you did it, change the password, and see in the audit log what was done."),
    ),
    "LeaseGiven": (OK, _("A tenant leased devices or host ports."), ""),
    "LeaseEnded": (OK, _("A lease ended: its devices and host ports are unassigned."), ""),
    "ChassisAdded": (OK, _("An administrator added a chassis to this site."), ""),
    "ChassisRemoved": (WARNING, _("An administrator removed a chassis from this site. Its events stay."), ""),
    "ExportTest": (OK, _("An administrator tested the target of an event export."), ""),
    "DriftNoticed": (
        WARNING,
        _("The state differs from the approved one: it was changed outside of this site."),
        _("Open the drift and accept the found state, or re-apply the approved one."),
    ),
    "DriftEnded": (OK, _("The state matches the approved one again."), ""),
    "ExportFailed": (
        WARNING,
        _("A run of an export failed."),
        _("Open the run for the reason. Fix it and resume the run; it continues where it stopped."),
    ),
    "RunCompleted": (OK, _("A run of a benchmark has ended, and its results are stored."), ""),
    "RunFailed": (
        WARNING,
        _("A run of a benchmark failed, or its devices were not released."),
        _("Open the run for the reason and the log. Its devices can be released there, too."),
    ),
    "RunCancelled": (OK, _("A run of a benchmark was cancelled."), ""),
    "EventsLost": (
        WARNING,
        _("The log of a BMC no longer had the entries that followed the last one that was read."),
        _("They cannot be restored. Check whether this site or the BMC was unreachable for long at that time."),
    ),
    "EventsMayBeLost": (
        WARNING,
        _("The log of a BMC was cleared, or restarted, while this site was not connected."),
        _("Check whether this site or the BMC was unreachable at that time, and who may clear the log."),
    ),
    "LinkWorse": (
        WARNING,
        _("A PCIe link is worse than before: down, narrower or slower than it can be, or with too many errors."),
        _("Open the link for the reasons and what to check."),
    ),
    "LinkBetter": (OK, _("A PCIe link is better than before."), ""),
    "AlertFiring": (WARNING, _("A reading met a rule for longer than its hold time."), _("Open the alert.")),
    "AlertAcknowledged": (OK, _("An alert was acknowledged."), ""),
    "AlertResolved": (OK, _("The condition of an alert is no longer met."), ""),
}

RESEAT = _("Check the cable or card of that port; reseat it, or replace it.")
LINKS = _("Open the port: its link and error counters show since when.")
COOLING = _("Check the fans, the air in front of the chassis, and the load of its devices.")


def _both_directions(
    name: str, severity: SeverityName, sentences: tuple[str, str, str], advice: str
) -> dict[str, MessageText]:
    """Return a message of links for each direction that the Fabric registry distinguishes: host, device, switches."""
    directions = ("Upstream", "Downstream", "Interswitch")
    return {
        f"{direction}{name}": (severity, sentence, advice)
        for direction, sentence in zip(directions, sentences, strict=True)
    }


FABRIC: dict[str, MessageText] = {
    **_both_directions(
        "LinkEstablished",
        OK,
        (
            _("A link came up. It is a link towards a host."),
            _("A link came up. It is a link towards a device."),
            _("A link came up. It is a link between two switches."),
        ),
        "",
    ),
    **_both_directions(
        "LinkDropped",
        CRITICAL,
        (
            _("A link went down. It is a link towards a host."),
            _("A link went down. It is a link towards a device."),
            _("A link went down. It is a link between two switches."),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkDegraded",
        WARNING,
        (
            _("A link is up with less width or speed than both of its ends support. It is a link towards a host."),
            _("A link is up with less width or speed than both of its ends support. It is a link towards a device."),
            _(
                "A link is up with less width or speed than both of its ends support. "
                "It is a link between two switches."
            ),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkFlapDetected",
        WARNING,
        (
            _("A link goes down and up repeatedly. It is a link towards a host."),
            _("A link goes down and up repeatedly. It is a link towards a device."),
            _("A link goes down and up repeatedly. It is a link between two switches."),
        ),
        RESEAT,
    ),
    **_both_directions(
        "LinkFlapDisabled",
        CRITICAL,
        (
            _("A link went down so often that it was switched off. It is a link towards a host."),
            _("A link went down so often that it was switched off. It is a link towards a device."),
            _("A link went down so often that it was switched off. It is a link between two switches."),
        ),
        RESEAT,
    ),
    "MaxFrameSizeExceeded": (WARNING, _("A port received a frame larger than its limit and dropped it."), ""),
    "PortManuallyEnabled": (OK, _("A port was enabled manually."), ""),
    "PortManuallyDisabled": (WARNING, _("A port was disabled manually."), _("Enable it again where it is needed.")),
    "PortAutomaticallyEnabled": (OK, _("A port was enabled automatically."), ""),
    "PortAutomaticallyDisabled": (
        CRITICAL,
        _("A port was disabled automatically, such as after too many errors."),
        LINKS,
    ),
    "PortDown": (CRITICAL, _("A port is down."), LINKS),
    "PortDegraded": (WARNING, _("A port works worse than it should."), LINKS),
    "PortReset": (OK, _("A port was reset."), ""),
    "CableInserted": (OK, _("A cable was inserted into a port."), ""),
    "CableRemoved": (WARNING, _("A cable was removed from a port, or has no contact."), RESEAT),
    "CableFailed": (CRITICAL, _("A cable has failed."), _("Replace the cable.")),
    "SwitchInsertionDetected": (OK, _("A switch appeared in the fabric."), ""),
    "SwitchRemovalDetected": (CRITICAL, _("A switch is no longer in the fabric."), _("Check its power and seat.")),
    "MediaControllerAdded": (OK, _("A media controller appeared in the fabric."), ""),
    "MediaControllerModified": (OK, _("A media controller was changed."), ""),
    "MediaControllerRemoved": (WARNING, _("A media controller is no longer in the fabric."), ""),
    "AddressPoolAdded": (OK, _("An address pool was added to the fabric."), ""),
    "AddressPoolModified": (OK, _("An address pool of the fabric was changed."), ""),
    "AddressPoolRemoved": (OK, _("An address pool was removed from the fabric."), ""),
    "ZoneAdded": (OK, _("A zone was added: a group of endpoints that reach each other."), ""),
    "ZoneModified": (OK, _("The members of a zone changed: a device was attached to a host port or detached."), ""),
    "ZoneRemoved": (OK, _("A zone was removed."), ""),
    "EndpointAdded": (OK, _("An endpoint appeared: a host port or a device of the fabric."), ""),
    "EndpointModified": (OK, _("An endpoint of the fabric was changed."), ""),
    "EndpointRemoved": (WARNING, _("An endpoint is no longer in the fabric."), ""),
    "ConnectionAdded": (OK, _("A connection between endpoints was added."), ""),
    "ConnectionModified": (OK, _("A connection between endpoints was changed."), ""),
    "ConnectionRemoved": (OK, _("A connection between endpoints was removed."), ""),
    "DegradedDownstreamLinkEstablished": (
        WARNING,
        _("A link to a device came up below what both ends support."),
        RESEAT,
    ),
    "DegradedUpstreamLinkEstablished": (WARNING, _("A link to a host came up below what both ends support."), RESEAT),
    "DegradedInterswitchLinkEstablished": (WARNING, _("A link between switches came up below its best."), RESEAT),
    "UpstreamLinkDegradedOnHost": (WARNING, _("A link towards a host is below its best."), RESEAT),
}

PLATFORM: dict[str, MessageText] = {
    "PCIeLinkDown": (CRITICAL, _("A PCIe link is down."), RESEAT),
    "PCIeLinkEstablished": (OK, _("A PCIe link is up."), ""),
    "PCIeIncorrectLinkWidth": (WARNING, _("A PCIe link uses fewer lanes than its ends support."), RESEAT),
    "PCIeIncorrectLinkSpeed": (WARNING, _("A PCIe link is slower than its ends support."), RESEAT),
    "PCIeCorrectableError": (WARNING, _("PCIe errors were corrected; many of them slow a link down."), LINKS),
    "PCIeUncorrectableError": (
        CRITICAL,
        _("A PCIe error could not be corrected; data of a device may be lost."),
        LINKS,
    ),
    "PCIeFatalError": (CRITICAL, _("A PCIe error stopped a link."), LINKS),
    "PlatformError": (CRITICAL, _("The machine reports an error."), _("Check its own log.")),
    "PlatformErrorAtLocation": (CRITICAL, _("The machine reports an error of a part."), _("Check that part.")),
    "UnhandledExceptionDetectedWithNoDetails": (CRITICAL, _("A processor raised an unhandled exception."), ""),
    "UnhandledExceptionDetected": (CRITICAL, _("A processor raised an unhandled exception."), ""),
    "OperatingSystemCrashed": (CRITICAL, _("The operating system of a host stopped with an error."), ""),
}

SENSOR: dict[str, MessageText] = {
    "ReadingAboveUpperCautionThreshold": (WARNING, _("A reading is above its upper caution threshold."), COOLING),
    "ReadingAboveUpperCriticalThreshold": (CRITICAL, _("A reading is above its upper critical threshold."), COOLING),
    "ReadingAboveUpperFatalThreshold": (
        CRITICAL, _("A reading is so high that parts may be destroyed; the chassis may switch off."), COOLING,
    ),
    "ReadingBelowLowerCautionThreshold": (WARNING, _("A reading is below its lower caution threshold."), ""),
    "ReadingBelowLowerCriticalThreshold": (CRITICAL, _("A reading is below its lower critical threshold."), ""),
    "ReadingBelowLowerFatalThreshold": (CRITICAL, _("A reading is so low that the part may not work."), ""),
    "ReadingBelowUpperCautionThreshold": (OK, _("A reading is no longer above its upper caution threshold."), ""),
    "ReadingBelowUpperCriticalThreshold": (WARNING, _("A reading is no longer critical, but still high."), ""),
    "ReadingBelowUpperFatalThreshold": (CRITICAL, _("A reading is no longer fatal, but still critical."), COOLING),
    "ReadingAboveLowerCautionThreshold": (OK, _("A reading is no longer below its lower caution threshold."), ""),
    "ReadingAboveLowerCriticalThreshold": (WARNING, _("A reading is no longer critical, but still low."), ""),
    "ReadingAboveLowerFatalThreshold": (CRITICAL, _("A reading is no longer fatal, but still critical."), ""),
    "SensorReadingNormalRange": (OK, _("A reading is within its normal range."), ""),
    "SensorRestored": (OK, _("A sensor works again."), ""),
    "SensorFailure": (WARNING, _("A sensor has failed: its value is not known."), _("Have the part checked.")),
    "InvalidSensorReading": (WARNING, _("A sensor reports invalid readings."), ""),
    "ReadingCritical": (CRITICAL, _("A reading is in its critical range."), COOLING),
    "ReadingWarning": (WARNING, _("A reading is outside of its normal range."), COOLING),
    "ReadingNoLongerCritical": (OK, _("A reading is no longer critical."), ""),
    "ReadingRemoved": (WARNING, _("A reading is no longer offered."), ""),
}  # fmt: skip

ENVIRONMENTAL: dict[str, MessageText] = {
    "FanInserted": (OK, _("A fan was inserted."), ""),
    "FanRemoved": (CRITICAL, _("A fan was removed."), _("Insert it again: the others have to cool alone.")),
    "FanFailed": (CRITICAL, _("A fan has failed."), _("Replace it; until then the others have to cool alone.")),
    "FanDegraded": (WARNING, _("A fan works worse than it should."), _("Replace it soon.")),
    "FanRestored": (OK, _("A fan works again."), ""),
    "FanGroupCritical": (CRITICAL, _("A group of fans no longer cools as it must."), COOLING),
    "FanGroupWarning": (WARNING, _("A group of fans cools less than it should."), COOLING),
    "FanGroupNormal": (OK, _("A group of fans works as it should."), ""),
    "TemperatureAboveUpperCautionThreshold": (WARNING, _("A temperature is above its caution threshold."), COOLING),
    "TemperatureAboveUpperCriticalThreshold": (CRITICAL, _("A temperature is above its critical threshold."), COOLING),
    "TemperatureAboveUpperFatalThreshold": (
        CRITICAL,
        _("A temperature is so high that parts may be destroyed."),
        COOLING,
    ),
    "TemperatureBelowLowerCautionThreshold": (WARNING, _("A temperature is below its caution threshold."), ""),
    "TemperatureBelowLowerCriticalThreshold": (CRITICAL, _("A temperature is below its critical threshold."), ""),
    "TemperatureNoLongerCritical": (OK, _("A temperature is no longer critical."), ""),
    "TemperatureNormal": (OK, _("A temperature is within its normal range."), ""),
    "TemperatureWarning": (WARNING, _("A temperature is outside of its normal range."), COOLING),
    "TemperatureCritical": (CRITICAL, _("A temperature is in its critical range."), COOLING),
}

POWER: dict[str, MessageText] = {
    "PowerSupplyInserted": (OK, _("A power supply was inserted."), ""),
    "PowerSupplyRemoved": (WARNING, _("A power supply was removed."), _("Insert it again: there is no redundancy.")),
    "PowerSupplyFailed": (CRITICAL, _("A power supply has failed."), _("Replace it: there is no redundancy.")),
    "PowerSupplyPredictiveFailure": (WARNING, _("A power supply will fail soon."), _("Replace it.")),
    "PowerSupplyWarning": (WARNING, _("A power supply works worse than it should."), _("Replace it soon.")),
    "PowerSupplyCritical": (CRITICAL, _("A power supply is in a critical state."), _("Replace it.")),
    "PowerSupplyRestored": (OK, _("A power supply works again."), ""),
    "PowerSupplyPowerGood": (OK, _("A power supply works."), ""),
    "PowerSupplyPowerLost": (CRITICAL, _("A power supply gets no power."), _("Look at its cable and the circuit.")),
    "PowerSupplyPowerRestored": (OK, _("A power supply gets power again."), ""),
    "CircuitPoweredOff": (WARNING, _("A circuit was switched off."), ""),
    "CircuitPoweredOn": (OK, _("A circuit was switched on."), ""),
    "PowerConsumptionAboveLimit": (WARNING, _("More power is used than the limit allows."), ""),
}

# A Falcon's own.
FALCON: dict[str, MessageText] = {
    "ManagerRestarted": (WARNING, _("The BMC restarted. Attachments stay; readings have a gap."), ""),
    "DrawerModeChanged": (OK, _("A drawer is in another mode: how its host ports share its slots changed."), ""),
}

RESOURCE: dict[str, MessageText] = {
    "ResourceCreated": (OK, _("A resource was added, such as an inserted device."), ""),
    "ResourceRemoved": (WARNING, _("A resource was removed, such as a device."), ""),
    "ResourceChanged": (OK, _("A resource changed. The site reads it again."), ""),
    "ResourceSelfTestCompleted": (OK, _("A part finished its self-test."), ""),
    "ResourceSelfTestFailed": (CRITICAL, _("A part failed its self-test."), _("Have the part checked.")),
    "ResourceStatusChangedOK": (OK, _("A part is healthy again."), ""),
    "ResourceStatusChangedWarning": (WARNING, _("A part needs attention."), _("Open the resource of the event.")),
    "ResourceStatusChangedCritical": (
        CRITICAL,
        _("A part is in a critical state."),
        _("Open the resource of the event."),
    ),
    "ResourceStateChanged": (OK, _("A part changed its state, such as from absent to enabled."), ""),
    "ResourcePoweredOn": (OK, _("A part was switched on."), ""),
    "ResourcePoweringOn": (OK, _("A part is being switched on."), ""),
    "ResourcePoweredOff": (WARNING, _("A part was switched off."), ""),
    "ResourcePoweringOff": (OK, _("A part is being switched off."), ""),
    "ResourcePaused": (OK, _("A part was paused."), ""),
    "ResourceErrorThresholdExceeded": (CRITICAL, _("A part exceeded its error threshold."), _("Check its counters.")),
    "ResourceErrorThresholdCleared": (OK, _("A part counts few errors again."), ""),
    "ResourceErrorsDetected": (WARNING, _("A part detected errors."), _("Check its counters.")),
    "ResourceErrorsCorrected": (OK, _("The errors of a part were corrected."), ""),
    "ResourceWarningThresholdExceeded": (WARNING, _("A part is beyond its threshold for a warning."), ""),
    "ResourceWarningThresholdCleared": (OK, _("A part is below its threshold for a warning again."), ""),
    "ResourceVersionIncompatible": (
        WARNING,
        _("A part has a firmware that does not fit the others."),
        _("Update it."),
    ),
    "URIForResourceChanged": (OK, _("A resource has another address on the BMC."), ""),
    "LicenseAdded": (OK, _("A licence was added."), ""),
    "LicenseChanged": (OK, _("A licence was changed."), ""),
    "LicenseExpired": (WARNING, _("A licence has run out."), ""),
    "TestMessage": (OK, _("A test message for events was sent."), ""),
    "AggregationSourceDiscovered": (OK, _("The BMC found another service that it can aggregate."), ""),
}

TASK: dict[str, MessageText] = {
    "TaskStarted": (OK, _("A task started on the BMC."), ""),
    "TaskProgressChanged": (OK, _("A task on the BMC made progress."), ""),
    "TaskCompletedOK": (OK, _("A task on the BMC succeeded."), ""),
    "TaskCompletedWarning": (
        WARNING,
        _("A task on the BMC ended with warnings."),
        _("Check the operation it belongs to."),
    ),
    "TaskAborted": (CRITICAL, _("A task on the BMC ended with errors."), _("Check the operation it belongs to.")),
    "TaskCancelled": (WARNING, _("A task on the BMC was cancelled."), ""),
    "TaskRemoved": (WARNING, _("The BMC removed a task."), ""),
    "TaskPaused": (WARNING, _("A task on the BMC was paused."), ""),
    "TaskResumed": (OK, _("A task on the BMC was resumed."), ""),
}

LOG: dict[str, MessageText] = {
    "LogCleared": (WARNING, _("A log of the BMC was cleared."), ""),
    "LogServiceCleared": (WARNING, _("A log of the BMC was cleared."), ""),
    "LogFull": (WARNING, _("A log of the BMC is full and accepts no more entries."), _("Clear it.")),
    "LogEntryAdded": (OK, _("A log of the BMC has a new entry."), ""),
    "DiagnosticDataCollected": (OK, _("The BMC collected diagnostic data."), ""),
}

UPDATE: dict[str, MessageText] = {
    "TargetDetermined": (OK, _("It is known which part an update is for."), ""),
    "AllTargetsDetermined": (OK, _("It is known which parts an update is for."), ""),
    "UpdateInProgress": (OK, _("A part's firmware is being updated."), ""),
    "UpdateSuccessful": (OK, _("A part's firmware was updated."), ""),
    "InstallingOnComponent": (OK, _("An image is being written into a part."), ""),
    "TransferringToComponent": (OK, _("An image is being sent to a part."), ""),
    "VerifyingAtComponent": (OK, _("A part checks the image that it received."), ""),
    "ApplyFailed": (CRITICAL, _("A part could not apply its new firmware."), _("Check its version, and try again.")),
    "TransferFailed": (CRITICAL, _("An image could not be sent to a part."), _("Try again.")),
    "VerificationFailed": (CRITICAL, _("A part refused an image."), _("Check whether the image is for that part.")),
    "ActivateFailed": (CRITICAL, _("A part could not start its new firmware."), ""),
    "AwaitToActivate": (
        WARNING,
        _("New firmware waits to be started."),
        _("Restart the part when it is not in use."),
    ),
    "AwaitToUpdate": (WARNING, _("An update waits for a person to start it."), ""),
    "OperationTransitionedToJob": (OK, _("An update continues as a job."), ""),
}

# Results of requests to a BMC; a task that ends with one becomes an event.
BASE: dict[str, MessageText] = {
    "Success": (OK, _("A request was carried out."), ""),
    "Created": (OK, _("A request created a resource."), ""),
    "NoOperation": (WARNING, _("A request requested the current state: nothing changed."), ""),
    "GeneralError": (CRITICAL, _("The BMC had an error that it does not describe."), _("Check the BMC's own log.")),
    "InternalError": (CRITICAL, _("The BMC had an internal error."), _("If it happens again, restart the BMC.")),
    "ServiceTemporarilyUnavailable": (
        CRITICAL,
        _("The BMC is busy or restarting."),
        _("It is retried automatically."),
    ),
    "ServiceInUnknownState": (CRITICAL, _("The BMC no longer accepts requests."), _("Restart it.")),
    "ServiceShuttingDown": (CRITICAL, _("The BMC shuts its service down."), ""),
    "ServiceDisabled": (WARNING, _("A service of the BMC is switched off."), ""),
    "AccessDenied": (CRITICAL, _("The account was refused."), _("Check the account that this site uses on the BMC.")),
    "AccountModified": (OK, _("An account of the BMC was changed."), ""),
    "AccountRemoved": (OK, _("An account of the BMC was removed."), ""),
    "AccountNotModified": (WARNING, _("An account of the BMC could not be changed."), ""),
    "PasswordChangeRequired": (CRITICAL, _("An account must change its password before it can do anything."), ""),
    "NoValidSession": (CRITICAL, _("A request came without a session of the BMC."), ""),
    "InsufficientPrivilege": (CRITICAL, _("The account lacks a privilege."), _("Give it the role it needs.")),
    "SessionLimitExceeded": (CRITICAL, _("The BMC allows no more sessions."), _("End unused sessions.")),
    "SessionTerminated": (OK, _("A session of the BMC ended."), ""),
    "EventSubscriptionLimitExceeded": (CRITICAL, _("The BMC allows no more event subscriptions."), _("Remove some.")),
    "EventBufferExceeded": (WARNING, _("The BMC had more events than it can buffer for a subscriber."), ""),
    "SubscriptionTerminated": (OK, _("A subscription of events ended."), ""),
    "ResourceInUse": (WARNING, _("Something is in use and cannot be changed now."), ""),
    "ResourceInStandby": (CRITICAL, _("A part is in standby and cannot do what was requested."), ""),
    "ResourceExhaustion": (CRITICAL, _("The BMC has run out of a resource."), ""),
    "ResourceNotFound": (CRITICAL, _("A request named a resource that does not exist."), ""),
    "ResourceMissingAtURI": (CRITICAL, _("A request named an address without a resource."), ""),
    "ResourceCannotBeDeleted": (CRITICAL, _("Something cannot be removed."), ""),
    "ResourceAtUriUnauthorized": (CRITICAL, _("The BMC itself was refused by another service."), ""),
    "ConditionInRelatedResource": (WARNING, _("Something that belongs to this part needs attention."), ""),
    "PropertyNotWritable": (WARNING, _("A request tried to change a read-only property."), ""),
    "PropertyUnknown": (WARNING, _("A request had a property that the BMC does not know."), ""),
    "PropertyMissing": (WARNING, _("A request lacked a property."), ""),
    "PropertyValueTypeError": (WARNING, _("A request had a value of the wrong type."), ""),
    "PropertyValueFormatError": (WARNING, _("A request had a value in the wrong form."), ""),
    "PropertyValueNotInList": (WARNING, _("A request had a value that is not among those allowed."), ""),
    "ActionNotSupported": (CRITICAL, _("The BMC does not support the requested action."), ""),
    "ActionParameterMissing": (CRITICAL, _("A request lacked a parameter of an action."), ""),
    "PreconditionFailed": (
        CRITICAL,
        _("Something had changed since it was read; the request was not carried out."),
        "",
    ),
    "QueryParameterOutOfRange": (WARNING, _("A request exceeded the end of a list."), ""),
    "MalformedJSON": (CRITICAL, _("The body of a request was not valid JSON."), ""),
    "OperationFailed": (WARNING, _("A request of the BMC to another service failed."), ""),
    "OperationTimeout": (WARNING, _("A request of the BMC to another service took too long."), ""),
    "OperationNotAllowed": (WARNING, _("The requested operation is not allowed now."), ""),
    "ChassisPowerStateOnRequired": (CRITICAL, _("The chassis must be on for the request."), _("Switch it on.")),
    "ChassisPowerStateOffRequired": (CRITICAL, _("The chassis must be off for the request."), ""),
    "SettingsFailed": (WARNING, _("Settings could not be applied."), ""),
    "ResetRequired": (WARNING, _("A change is in force only after a restart."), ""),
    "ResetRecommended": (WARNING, _("A restart is recommended."), ""),
    "HeaderInvalid": (CRITICAL, _("A request had a header that the BMC refuses."), ""),
    "InvalidObject": (CRITICAL, _("A request had an invalid address."), ""),
    "UndeterminedFault": (CRITICAL, _("An undetermined fault."), ""),
    "CreateLimitReachedForResource": (CRITICAL, _("No more resources of this kind can be created."), ""),
    "ComponentInstalled": (OK, _("A part was installed."), ""),
    "ComponentRemoved": (WARNING, _("A part was removed."), ""),
    "ConnectionLost": (WARNING, _("The BMC lost a connection of its own."), ""),
    "RegistryNotFound": (OK, _("A message comes from a registry that the BMC does not have."), ""),
}

STORAGE: dict[str, MessageText] = {
    "DriveFailure": (CRITICAL, _("A drive has failed."), _("Replace it; its data may be lost.")),
    "DriveInserted": (OK, _("A drive was inserted."), ""),
    "DriveRemoved": (WARNING, _("A drive was removed."), ""),
    "DriveOK": (OK, _("A drive is healthy."), ""),
    "DrivePredictiveFailure": (WARNING, _("A drive will fail soon."), _("Copy its data and replace it.")),
    "DriveOffline": (CRITICAL, _("A drive does not answer."), _("Reseat it, or replace it.")),
    "DriveOfflineCleared": (OK, _("A drive answers again."), ""),
    "DriveFailureCleared": (OK, _("A drive works again."), ""),
}

BMC: dict[str, MessageText] = {
    "BMCRebooted": (WARNING, _("The BMC restarted. Readings have a gap."), ""),
    "BMCKernelPanic": (CRITICAL, _("The BMC's operating system stopped with an error."), ""),
    "ServiceFailure": (WARNING, _("A program of the BMC has failed."), ""),
    "ServiceStarted": (OK, _("A program of the BMC started."), ""),
    "FirmwareUpdateStarted": (OK, _("An update of firmware began."), ""),
    "FirmwareUpdateCompleted": (OK, _("An update of firmware ended."), ""),
    "PowerButtonPressed": (OK, _("The power button was pressed."), ""),
    "DCPowerOn": (OK, _("The machine was switched on."), ""),
    "DCPowerOff": (WARNING, _("The machine was switched off."), ""),
    "ACPowerLost": (CRITICAL, _("The machine lost its mains power."), _("Check the circuit.")),
    "SELEntryAdded": (OK, _("The system event log has a new entry."), ""),
    "EventLogCleared": (WARNING, _("The event log was cleared."), ""),
}

# In the order of the catalogue: the site's own, then those of links first.
REGISTRIES: dict[str, dict[str, MessageText]] = {
    "FalconWeb": SITE,
    "Fabric": FABRIC,
    "Platform": PLATFORM,
    "SensorEvent": SENSOR,
    "Sensor": SENSOR,
    "Environmental": ENVIRONMENTAL,
    "Power": POWER,
    "H3Falcon": FALCON,
    "ResourceEvent": RESOURCE,
    "TaskEvent": TASK,
    "LogService": LOG,
    "Update": UPDATE,
    "Base": BASE,
    "StorageDevice": STORAGE,
    "OpenBMC": BMC,
    "HeartbeatEvent": {"RedfishServiceFunctional": (OK, _("The BMC reports that it works."), "")},
}
