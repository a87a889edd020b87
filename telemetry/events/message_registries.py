"""Texts and severities of messages by registry: FalconWeb's own, Fabric, platform, service."""

from __future__ import annotations

from typing import Final, Literal

SeverityName = Literal["OK", "Warning", "Critical"]
# Severity, explanation, advice.
MessageText = tuple[SeverityName, str, str]

OK: Final[SeverityName] = "OK"
WARNING: Final[SeverityName] = "Warning"
CRITICAL: Final[SeverityName] = "Critical"

SITE: dict[str, MessageText] = {
    "OperationBegun": (OK, "A change of hardware began: attach, detach, move, or a setting.", ""),
    "OperationDone": (OK, "A change of hardware is done and was verified by reading it back.", ""),
    "OperationFailed": (
        WARNING,
        "A change of hardware did not succeed.",
        "Open the operation: its steps say where it stopped and why.",
    ),
    "OperationCancelled": (OK, "A change of hardware was cancelled before it started.", ""),
    "OperationRolledBack": (OK, "The changes of an operation were rolled back.", ""),
    "PlanBegun": (OK, "A plan is being carried out.", ""),
    "PlanDone": (OK, "All operations of a plan are done.", ""),
    "PlanStopped": (
        WARNING,
        "A plan stopped before its end and waits for a decision.",
        "Open the plan and resume it, roll it back, or leave things as they are.",
    ),
    "PlanCancelled": (OK, "A plan was cancelled.", ""),
    "PlanRolledBack": (OK, "A plan was rolled back: its changes were reverted.", ""),
    "PlanLeft": (OK, "A plan that had stopped was left partly done.", ""),
    "SignedIn": (OK, "A person signed in.", ""),
    "SignedOut": (OK, "A person signed out.", ""),
    "AuditEntry": (OK, "An entry of the audit log; `arguments` has all of it.", ""),
    "SignInRefused": (
        WARNING,
        "A sign-in was refused. Repeated attempts within a minute are one event.",
        "If it was not the person, check in the audit log where the attempts came from.",
    ),
    "BreakGlassUsed": (
        CRITICAL,
        "The local administrator for emergencies signed in with a password.",
        "If nobody of you did it, change the password, and see in the audit log what was done.",
    ),
    "LeaseGiven": (OK, "A tenant leased devices or host ports.", ""),
    "LeaseEnded": (OK, "A lease ended: its devices and host ports are unassigned.", ""),
    "ChassisAdded": (OK, "An administrator added a chassis to this site.", ""),
    "ChassisRemoved": (WARNING, "An administrator removed a chassis from this site. Its events stay.", ""),
    "ExportTest": (OK, "An administrator tested the target of an event export.", ""),
    "DriftNoticed": (
        WARNING,
        "The state differs from the approved one: it was changed outside of this site.",
        "Open the drift and accept the found state, or re-apply the approved one.",
    ),
    "DriftEnded": (OK, "The state matches the approved one again.", ""),
    "ExportFailed": (
        WARNING,
        "A run of an export failed.",
        "Open the run for the reason. Fix it and resume the run; it continues where it stopped.",
    ),
    "RunCompleted": (OK, "A run of a benchmark has ended, and its results are stored.", ""),
    "RunFailed": (
        WARNING,
        "A run of a benchmark failed, or its devices were not released.",
        "Open the run for the reason and the log. Its devices can be released there, too.",
    ),
    "RunCancelled": (OK, "A run of a benchmark was cancelled.", ""),
    "EventsLost": (
        WARNING,
        "The log of a BMC no longer had the entries that followed the last one that was read.",
        "They cannot be restored. Check whether this site or the BMC was unreachable for long at that time.",
    ),
    "EventsMayBeLost": (
        WARNING,
        "The log of a BMC was cleared, or restarted, while this site was not connected.",
        "Check whether this site or the BMC was unreachable at that time, and who may clear the log.",
    ),
    "LinkWorse": (
        WARNING,
        "A PCIe link is worse than before: down, narrower or slower than it can be, or with too many errors.",
        "Open the link for the reasons and what to check.",
    ),
    "LinkBetter": (OK, "A PCIe link is better than before.", ""),
    "AlertFiring": (WARNING, "A reading met a rule for longer than its hold time.", "Open the alert."),
    "AlertAcknowledged": (OK, "An alert was acknowledged.", ""),
    "AlertResolved": (OK, "The condition of an alert is no longer met.", ""),
}

RESEAT = "Check the cable or card of that port; reseat it, or replace it."
LINKS = "Open the port: its link and error counters show since when."
COOLING = "Check the fans, the air in front of the chassis, and the load of its devices."


def _both_directions(name: str, words: MessageText) -> dict[str, MessageText]:
    """Return a message of links for each direction that the Fabric registry distinguishes."""
    severity, sentence, advice = words
    return {
        f"Upstream{name}": (severity, f"{sentence} It is a link towards a host.", advice),
        f"Downstream{name}": (severity, f"{sentence} It is a link towards a device.", advice),
        f"Interswitch{name}": (severity, f"{sentence} It is a link between two switches.", advice),
    }


FABRIC: dict[str, MessageText] = {
    **_both_directions("LinkEstablished", (OK, "A link came up.", "")),
    **_both_directions("LinkDropped", (CRITICAL, "A link went down.", RESEAT)),
    **_both_directions(
        "LinkDegraded", (WARNING, "A link is up with less width or speed than both of its ends support.", RESEAT)
    ),
    **_both_directions("LinkFlapDetected", (WARNING, "A link goes down and up repeatedly.", RESEAT)),
    **_both_directions("LinkFlapDisabled", (CRITICAL, "A link went down so often that it was switched off.", RESEAT)),
    "MaxFrameSizeExceeded": (WARNING, "A port received a frame larger than its limit and dropped it.", ""),
    "PortManuallyEnabled": (OK, "A port was enabled manually.", ""),
    "PortManuallyDisabled": (WARNING, "A port was disabled manually.", "Enable it again where it is needed."),
    "PortAutomaticallyEnabled": (OK, "A port was enabled automatically.", ""),
    "PortAutomaticallyDisabled": (CRITICAL, "A port was disabled automatically, such as after too many errors.", LINKS),
    "PortDown": (CRITICAL, "A port is down.", LINKS),
    "PortDegraded": (WARNING, "A port works worse than it should.", LINKS),
    "PortReset": (OK, "A port was reset.", ""),
    "CableInserted": (OK, "A cable was inserted into a port.", ""),
    "CableRemoved": (WARNING, "A cable was removed from a port, or has no contact.", RESEAT),
    "CableFailed": (CRITICAL, "A cable has failed.", "Replace the cable."),
    "SwitchInsertionDetected": (OK, "A switch appeared in the fabric.", ""),
    "SwitchRemovalDetected": (CRITICAL, "A switch is no longer in the fabric.", "Check its power and seat."),
    "MediaControllerAdded": (OK, "A media controller appeared in the fabric.", ""),
    "MediaControllerModified": (OK, "A media controller was changed.", ""),
    "MediaControllerRemoved": (WARNING, "A media controller is no longer in the fabric.", ""),
    "AddressPoolAdded": (OK, "An address pool was added to the fabric.", ""),
    "AddressPoolModified": (OK, "An address pool of the fabric was changed.", ""),
    "AddressPoolRemoved": (OK, "An address pool was removed from the fabric.", ""),
    "ZoneAdded": (OK, "A zone was added: a group of endpoints that reach each other.", ""),
    "ZoneModified": (OK, "The members of a zone changed: a device was attached to a host port or detached.", ""),
    "ZoneRemoved": (OK, "A zone was removed.", ""),
    "EndpointAdded": (OK, "An endpoint appeared: a host port or a device of the fabric.", ""),
    "EndpointModified": (OK, "An endpoint of the fabric was changed.", ""),
    "EndpointRemoved": (WARNING, "An endpoint is no longer in the fabric.", ""),
    "ConnectionAdded": (OK, "A connection between endpoints was added.", ""),
    "ConnectionModified": (OK, "A connection between endpoints was changed.", ""),
    "ConnectionRemoved": (OK, "A connection between endpoints was removed.", ""),
    "DegradedDownstreamLinkEstablished": (WARNING, "A link to a device came up below what both ends support.", RESEAT),
    "DegradedUpstreamLinkEstablished": (WARNING, "A link to a host came up below what both ends support.", RESEAT),
    "DegradedInterswitchLinkEstablished": (WARNING, "A link between switches came up below its best.", RESEAT),
    "UpstreamLinkDegradedOnHost": (WARNING, "A link towards a host is below its best.", RESEAT),
}

PLATFORM: dict[str, MessageText] = {
    "PCIeLinkDown": (CRITICAL, "A PCIe link is down.", RESEAT),
    "PCIeLinkEstablished": (OK, "A PCIe link is up.", ""),
    "PCIeIncorrectLinkWidth": (WARNING, "A PCIe link uses fewer lanes than its ends support.", RESEAT),
    "PCIeIncorrectLinkSpeed": (WARNING, "A PCIe link is slower than its ends support.", RESEAT),
    "PCIeCorrectableError": (WARNING, "PCIe errors were corrected; many of them slow a link down.", LINKS),
    "PCIeUncorrectableError": (CRITICAL, "A PCIe error could not be corrected; data of a device may be lost.", LINKS),
    "PCIeFatalError": (CRITICAL, "A PCIe error stopped a link.", LINKS),
    "PlatformError": (CRITICAL, "The machine reports an error.", "Check its own log."),
    "PlatformErrorAtLocation": (CRITICAL, "The machine reports an error of a part.", "Check that part."),
    "UnhandledExceptionDetectedWithNoDetails": (CRITICAL, "A processor raised an unhandled exception.", ""),
    "UnhandledExceptionDetected": (CRITICAL, "A processor raised an unhandled exception.", ""),
    "OperatingSystemCrashed": (CRITICAL, "The operating system of a host stopped with an error.", ""),
}

SENSOR: dict[str, MessageText] = {
    "ReadingAboveUpperCautionThreshold": (WARNING, "A reading is above its upper caution threshold.", COOLING),
    "ReadingAboveUpperCriticalThreshold": (CRITICAL, "A reading is above its upper critical threshold.", COOLING),
    "ReadingAboveUpperFatalThreshold": (
        CRITICAL, "A reading is so high that parts may be destroyed; the chassis may switch off.", COOLING,
    ),
    "ReadingBelowLowerCautionThreshold": (WARNING, "A reading is below its lower caution threshold.", ""),
    "ReadingBelowLowerCriticalThreshold": (CRITICAL, "A reading is below its lower critical threshold.", ""),
    "ReadingBelowLowerFatalThreshold": (CRITICAL, "A reading is so low that the part may not work.", ""),
    "ReadingBelowUpperCautionThreshold": (OK, "A reading is no longer above its upper caution threshold.", ""),
    "ReadingBelowUpperCriticalThreshold": (WARNING, "A reading is no longer critical, but still high.", ""),
    "ReadingBelowUpperFatalThreshold": (CRITICAL, "A reading is no longer fatal, but still critical.", COOLING),
    "ReadingAboveLowerCautionThreshold": (OK, "A reading is no longer below its lower caution threshold.", ""),
    "ReadingAboveLowerCriticalThreshold": (WARNING, "A reading is no longer critical, but still low.", ""),
    "ReadingAboveLowerFatalThreshold": (CRITICAL, "A reading is no longer fatal, but still critical.", ""),
    "SensorReadingNormalRange": (OK, "A reading is within its normal range.", ""),
    "SensorRestored": (OK, "A sensor works again.", ""),
    "SensorFailure": (WARNING, "A sensor has failed: its value is not known.", "Have the part checked."),
    "InvalidSensorReading": (WARNING, "A sensor reports invalid readings.", ""),
    "ReadingCritical": (CRITICAL, "A reading is in its critical range.", COOLING),
    "ReadingWarning": (WARNING, "A reading is outside of its normal range.", COOLING),
    "ReadingNoLongerCritical": (OK, "A reading is no longer critical.", ""),
    "ReadingRemoved": (WARNING, "A reading is no longer offered.", ""),
}  # fmt: skip

ENVIRONMENTAL: dict[str, MessageText] = {
    "FanInserted": (OK, "A fan was inserted.", ""),
    "FanRemoved": (CRITICAL, "A fan was removed.", "Insert it again: the others have to cool alone."),
    "FanFailed": (CRITICAL, "A fan has failed.", "Replace it; until then the others have to cool alone."),
    "FanDegraded": (WARNING, "A fan works worse than it should.", "Replace it soon."),
    "FanRestored": (OK, "A fan works again.", ""),
    "FanGroupCritical": (CRITICAL, "A group of fans no longer cools as it must.", COOLING),
    "FanGroupWarning": (WARNING, "A group of fans cools less than it should.", COOLING),
    "FanGroupNormal": (OK, "A group of fans works as it should.", ""),
    "TemperatureAboveUpperCautionThreshold": (WARNING, "A temperature is above its caution threshold.", COOLING),
    "TemperatureAboveUpperCriticalThreshold": (CRITICAL, "A temperature is above its critical threshold.", COOLING),
    "TemperatureAboveUpperFatalThreshold": (CRITICAL, "A temperature is so high that parts may be destroyed.", COOLING),
    "TemperatureBelowLowerCautionThreshold": (WARNING, "A temperature is below its caution threshold.", ""),
    "TemperatureBelowLowerCriticalThreshold": (CRITICAL, "A temperature is below its critical threshold.", ""),
    "TemperatureNoLongerCritical": (OK, "A temperature is no longer critical.", ""),
    "TemperatureNormal": (OK, "A temperature is within its normal range.", ""),
    "TemperatureWarning": (WARNING, "A temperature is outside of its normal range.", COOLING),
    "TemperatureCritical": (CRITICAL, "A temperature is in its critical range.", COOLING),
}

POWER: dict[str, MessageText] = {
    "PowerSupplyInserted": (OK, "A power supply was inserted.", ""),
    "PowerSupplyRemoved": (WARNING, "A power supply was removed.", "Insert it again: there is no redundancy."),
    "PowerSupplyFailed": (CRITICAL, "A power supply has failed.", "Replace it: there is no redundancy."),
    "PowerSupplyPredictiveFailure": (WARNING, "A power supply will fail soon.", "Replace it."),
    "PowerSupplyWarning": (WARNING, "A power supply works worse than it should.", "Replace it soon."),
    "PowerSupplyCritical": (CRITICAL, "A power supply is in a critical state.", "Replace it."),
    "PowerSupplyRestored": (OK, "A power supply works again.", ""),
    "PowerSupplyPowerGood": (OK, "A power supply works.", ""),
    "PowerSupplyPowerLost": (CRITICAL, "A power supply gets no power.", "Look at its cable and the circuit."),
    "PowerSupplyPowerRestored": (OK, "A power supply gets power again.", ""),
    "CircuitPoweredOff": (WARNING, "A circuit was switched off.", ""),
    "CircuitPoweredOn": (OK, "A circuit was switched on.", ""),
    "PowerConsumptionAboveLimit": (WARNING, "More power is used than the limit allows.", ""),
}

# A Falcon's own.
FALCON: dict[str, MessageText] = {
    "ManagerRestarted": (WARNING, "The BMC restarted. Attachments stay; readings have a gap.", ""),
    "DrawerModeChanged": (OK, "A drawer is in another mode: how its host ports share its slots changed.", ""),
}

RESOURCE: dict[str, MessageText] = {
    "ResourceCreated": (OK, "A resource was added, such as an inserted device.", ""),
    "ResourceRemoved": (WARNING, "A resource was removed, such as a device.", ""),
    "ResourceChanged": (OK, "A resource changed. The site reads it again.", ""),
    "ResourceSelfTestCompleted": (OK, "A part finished its self-test.", ""),
    "ResourceSelfTestFailed": (CRITICAL, "A part failed its self-test.", "Have the part checked."),
    "ResourceStatusChangedOK": (OK, "A part is healthy again.", ""),
    "ResourceStatusChangedWarning": (WARNING, "A part needs attention.", "Open the resource of the event."),
    "ResourceStatusChangedCritical": (CRITICAL, "A part is in a critical state.", "Open the resource of the event."),
    "ResourceStateChanged": (OK, "A part changed its state, such as from absent to enabled.", ""),
    "ResourcePoweredOn": (OK, "A part was switched on.", ""),
    "ResourcePoweringOn": (OK, "A part is being switched on.", ""),
    "ResourcePoweredOff": (WARNING, "A part was switched off.", ""),
    "ResourcePoweringOff": (OK, "A part is being switched off.", ""),
    "ResourcePaused": (OK, "A part was paused.", ""),
    "ResourceErrorThresholdExceeded": (CRITICAL, "A part exceeded its error threshold.", "Check its counters."),
    "ResourceErrorThresholdCleared": (OK, "A part counts few errors again.", ""),
    "ResourceErrorsDetected": (WARNING, "A part detected errors.", "Check its counters."),
    "ResourceErrorsCorrected": (OK, "The errors of a part were corrected.", ""),
    "ResourceWarningThresholdExceeded": (WARNING, "A part is beyond its threshold for a warning.", ""),
    "ResourceWarningThresholdCleared": (OK, "A part is below its threshold for a warning again.", ""),
    "ResourceVersionIncompatible": (WARNING, "A part has a firmware that does not fit the others.", "Update it."),
    "URIForResourceChanged": (OK, "A resource has another address on the BMC.", ""),
    "LicenseAdded": (OK, "A licence was added.", ""),
    "LicenseChanged": (OK, "A licence was changed.", ""),
    "LicenseExpired": (WARNING, "A licence has run out.", ""),
    "TestMessage": (OK, "A test message for events was sent.", ""),
    "AggregationSourceDiscovered": (OK, "The BMC found another service that it can aggregate.", ""),
}

TASK: dict[str, MessageText] = {
    "TaskStarted": (OK, "A task started on the BMC.", ""),
    "TaskProgressChanged": (OK, "A task on the BMC made progress.", ""),
    "TaskCompletedOK": (OK, "A task on the BMC succeeded.", ""),
    "TaskCompletedWarning": (WARNING, "A task on the BMC ended with warnings.", "Check the operation it belongs to."),
    "TaskAborted": (CRITICAL, "A task on the BMC ended with errors.", "Check the operation it belongs to."),
    "TaskCancelled": (WARNING, "A task on the BMC was cancelled.", ""),
    "TaskRemoved": (WARNING, "The BMC removed a task.", ""),
    "TaskPaused": (WARNING, "A task on the BMC was paused.", ""),
    "TaskResumed": (OK, "A task on the BMC was resumed.", ""),
}

LOG: dict[str, MessageText] = {
    "LogCleared": (WARNING, "A log of the BMC was cleared.", ""),
    "LogServiceCleared": (WARNING, "A log of the BMC was cleared.", ""),
    "LogFull": (WARNING, "A log of the BMC is full and accepts no more entries.", "Clear it."),
    "LogEntryAdded": (OK, "A log of the BMC has a new entry.", ""),
    "DiagnosticDataCollected": (OK, "The BMC collected diagnostic data.", ""),
}

UPDATE: dict[str, MessageText] = {
    "TargetDetermined": (OK, "It is known which part an update is for.", ""),
    "AllTargetsDetermined": (OK, "It is known which parts an update is for.", ""),
    "UpdateInProgress": (OK, "A part's firmware is being updated.", ""),
    "UpdateSuccessful": (OK, "A part's firmware was updated.", ""),
    "InstallingOnComponent": (OK, "An image is being written into a part.", ""),
    "TransferringToComponent": (OK, "An image is being sent to a part.", ""),
    "VerifyingAtComponent": (OK, "A part checks the image that it received.", ""),
    "ApplyFailed": (CRITICAL, "A part could not apply its new firmware.", "Check its version, and try again."),
    "TransferFailed": (CRITICAL, "An image could not be sent to a part.", "Try again."),
    "VerificationFailed": (CRITICAL, "A part refused an image.", "Check whether the image is for that part."),
    "ActivateFailed": (CRITICAL, "A part could not start its new firmware.", ""),
    "AwaitToActivate": (WARNING, "New firmware waits to be started.", "Restart the part when it is not in use."),
    "AwaitToUpdate": (WARNING, "An update waits for a person to start it.", ""),
    "OperationTransitionedToJob": (OK, "An update continues as a job.", ""),
}

# Results of requests to a BMC; a task that ends with one becomes an event.
BASE: dict[str, MessageText] = {
    "Success": (OK, "A request was carried out.", ""),
    "Created": (OK, "A request created a resource.", ""),
    "NoOperation": (WARNING, "A request requested the current state: nothing changed.", ""),
    "GeneralError": (CRITICAL, "The BMC had an error that it does not describe.", "Check the BMC's own log."),
    "InternalError": (CRITICAL, "The BMC had an internal error.", "If it happens again, restart the BMC."),
    "ServiceTemporarilyUnavailable": (CRITICAL, "The BMC is busy or restarting.", "It is retried automatically."),
    "ServiceInUnknownState": (CRITICAL, "The BMC no longer accepts requests.", "Restart it."),
    "ServiceShuttingDown": (CRITICAL, "The BMC shuts its service down.", ""),
    "ServiceDisabled": (WARNING, "A service of the BMC is switched off.", ""),
    "AccessDenied": (CRITICAL, "The account was refused.", "Check the account that this site uses on the BMC."),
    "AccountModified": (OK, "An account of the BMC was changed.", ""),
    "AccountRemoved": (OK, "An account of the BMC was removed.", ""),
    "AccountNotModified": (WARNING, "An account of the BMC could not be changed.", ""),
    "PasswordChangeRequired": (CRITICAL, "An account must change its password before it can do anything.", ""),
    "NoValidSession": (CRITICAL, "A request came without a session of the BMC.", ""),
    "InsufficientPrivilege": (CRITICAL, "The account lacks a privilege.", "Give it the role it needs."),
    "SessionLimitExceeded": (CRITICAL, "The BMC allows no more sessions.", "End unused sessions."),
    "SessionTerminated": (OK, "A session of the BMC ended.", ""),
    "EventSubscriptionLimitExceeded": (CRITICAL, "The BMC allows no more event subscriptions.", "Remove some."),
    "EventBufferExceeded": (WARNING, "The BMC had more events than it can buffer for a subscriber.", ""),
    "SubscriptionTerminated": (OK, "A subscription of events ended.", ""),
    "ResourceInUse": (WARNING, "Something is in use and cannot be changed now.", ""),
    "ResourceInStandby": (CRITICAL, "A part is in standby and cannot do what was requested.", ""),
    "ResourceExhaustion": (CRITICAL, "The BMC has run out of a resource.", ""),
    "ResourceNotFound": (CRITICAL, "A request named a resource that does not exist.", ""),
    "ResourceMissingAtURI": (CRITICAL, "A request named an address without a resource.", ""),
    "ResourceCannotBeDeleted": (CRITICAL, "Something cannot be removed.", ""),
    "ResourceAtUriUnauthorized": (CRITICAL, "The BMC itself was refused by another service.", ""),
    "ConditionInRelatedResource": (WARNING, "Something that belongs to this part needs attention.", ""),
    "PropertyNotWritable": (WARNING, "A request tried to change a read-only property.", ""),
    "PropertyUnknown": (WARNING, "A request had a property that the BMC does not know.", ""),
    "PropertyMissing": (WARNING, "A request lacked a property.", ""),
    "PropertyValueTypeError": (WARNING, "A request had a value of the wrong type.", ""),
    "PropertyValueFormatError": (WARNING, "A request had a value in the wrong form.", ""),
    "PropertyValueNotInList": (WARNING, "A request had a value that is not among those allowed.", ""),
    "ActionNotSupported": (CRITICAL, "The BMC does not support the requested action.", ""),
    "ActionParameterMissing": (CRITICAL, "A request lacked a parameter of an action.", ""),
    "PreconditionFailed": (CRITICAL, "Something had changed since it was read; the request was not carried out.", ""),
    "QueryParameterOutOfRange": (WARNING, "A request exceeded the end of a list.", ""),
    "MalformedJSON": (CRITICAL, "The body of a request was not valid JSON.", ""),
    "OperationFailed": (WARNING, "A request of the BMC to another service failed.", ""),
    "OperationTimeout": (WARNING, "A request of the BMC to another service took too long.", ""),
    "OperationNotAllowed": (WARNING, "The requested operation is not allowed now.", ""),
    "ChassisPowerStateOnRequired": (CRITICAL, "The chassis must be on for the request.", "Switch it on."),
    "ChassisPowerStateOffRequired": (CRITICAL, "The chassis must be off for the request.", ""),
    "SettingsFailed": (WARNING, "Settings could not be applied.", ""),
    "ResetRequired": (WARNING, "A change is in force only after a restart.", ""),
    "ResetRecommended": (WARNING, "A restart is recommended.", ""),
    "HeaderInvalid": (CRITICAL, "A request had a header that the BMC refuses.", ""),
    "InvalidObject": (CRITICAL, "A request had an invalid address.", ""),
    "UndeterminedFault": (CRITICAL, "An undetermined fault.", ""),
    "CreateLimitReachedForResource": (CRITICAL, "No more resources of this kind can be created.", ""),
    "ComponentInstalled": (OK, "A part was installed.", ""),
    "ComponentRemoved": (WARNING, "A part was removed.", ""),
    "ConnectionLost": (WARNING, "The BMC lost a connection of its own.", ""),
    "RegistryNotFound": (OK, "A message comes from a registry that the BMC does not have.", ""),
}

STORAGE: dict[str, MessageText] = {
    "DriveFailure": (CRITICAL, "A drive has failed.", "Replace it; its data may be lost."),
    "DriveInserted": (OK, "A drive was inserted.", ""),
    "DriveRemoved": (WARNING, "A drive was removed.", ""),
    "DriveOK": (OK, "A drive is healthy.", ""),
    "DrivePredictiveFailure": (WARNING, "A drive will fail soon.", "Copy its data and replace it."),
    "DriveOffline": (CRITICAL, "A drive does not answer.", "Reseat it, or replace it."),
    "DriveOfflineCleared": (OK, "A drive answers again.", ""),
    "DriveFailureCleared": (OK, "A drive works again.", ""),
}

BMC: dict[str, MessageText] = {
    "BMCRebooted": (WARNING, "The BMC restarted. Readings have a gap.", ""),
    "BMCKernelPanic": (CRITICAL, "The BMC's operating system stopped with an error.", ""),
    "ServiceFailure": (WARNING, "A program of the BMC has failed.", ""),
    "ServiceStarted": (OK, "A program of the BMC started.", ""),
    "FirmwareUpdateStarted": (OK, "An update of firmware began.", ""),
    "FirmwareUpdateCompleted": (OK, "An update of firmware ended.", ""),
    "PowerButtonPressed": (OK, "The power button was pressed.", ""),
    "DCPowerOn": (OK, "The machine was switched on.", ""),
    "DCPowerOff": (WARNING, "The machine was switched off.", ""),
    "ACPowerLost": (CRITICAL, "The machine lost its mains power.", "Check the circuit."),
    "SELEntryAdded": (OK, "The system event log has a new entry.", ""),
    "EventLogCleared": (WARNING, "The event log was cleared.", ""),
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
    "HeartbeatEvent": {"RedfishServiceFunctional": (OK, "The BMC reports that it works.", "")},
}
