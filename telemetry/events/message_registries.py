"""Texts and severities of messages by registry: FalconWeb's own, Fabric, platform, service."""

from __future__ import annotations

from typing import Final, Literal

SeverityName = Literal["OK", "Warning", "Critical"]
# Severity, what it says, what to do.
MessageText = tuple[SeverityName, str, str]

OK: Final[SeverityName] = "OK"
WARNING: Final[SeverityName] = "Warning"
CRITICAL: Final[SeverityName] = "Critical"

SITE_REGISTRIES: dict[str, dict[str, MessageText]] = {
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

RESEAT = "Look at the cable or card of that port; seat it again, or put another one in."
LINKS = "Open the port: its link and error counters show since when."
COOLING = "Look at the fans, at the air in front of the chassis, and at the load of its devices."


def _both_directions(name: str, words: MessageText) -> dict[str, MessageText]:
    """Return a message of links for both directions that the Fabric registry tells apart."""
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
        "LinkDegraded", (WARNING, "A link is up with less width or speed than both of its ends can do.", RESEAT)
    ),
    **_both_directions("LinkFlapDetected", (WARNING, "A link goes down and comes up again, time after time.", RESEAT)),
    **_both_directions("LinkFlapDisabled", (CRITICAL, "A link went down so often that it was switched off.", RESEAT)),
    "MaxFrameSizeExceeded": (WARNING, "A port received a frame larger than it takes; it was dropped.", ""),
    "PortManuallyEnabled": (OK, "Somebody enabled a port.", ""),
    "PortManuallyDisabled": (WARNING, "Somebody disabled a port.", "Enable it again where it shall be used."),
    "PortAutomaticallyEnabled": (OK, "A port was enabled by itself.", ""),
    "PortAutomaticallyDisabled": (CRITICAL, "A port was disabled by itself, as after too many errors.", LINKS),
    "PortDown": (CRITICAL, "A port is down.", LINKS),
    "PortDegraded": (WARNING, "A port works worse than it should.", LINKS),
    "PortReset": (OK, "A port was reset.", ""),
    "CableInserted": (OK, "A cable was put into a port.", ""),
    "CableRemoved": (WARNING, "A cable was pulled out of a port, or no longer makes contact.", RESEAT),
    "CableFailed": (CRITICAL, "A cable has failed.", "Put another cable in."),
    "SwitchInsertionDetected": (OK, "A switch appeared in the fabric.", ""),
    "SwitchRemovalDetected": (CRITICAL, "A switch is no longer in the fabric.", "Look at its power and seat."),
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
    "DegradedDownstreamLinkEstablished": (WARNING, "A link to a device came up below what both ends can do.", RESEAT),
    "DegradedUpstreamLinkEstablished": (WARNING, "A link to a host came up below what both ends can do.", RESEAT),
    "DegradedInterswitchLinkEstablished": (WARNING, "A link between switches came up below its best.", RESEAT),
    "UpstreamLinkDegradedOnHost": (WARNING, "A link towards a host is below its best.", RESEAT),
}

PLATFORM: dict[str, MessageText] = {
    "PCIeLinkDown": (CRITICAL, "A PCIe link is down.", RESEAT),
    "PCIeLinkEstablished": (OK, "A PCIe link is up.", ""),
    "PCIeIncorrectLinkWidth": (WARNING, "A PCIe link uses fewer lanes than its ends have.", RESEAT),
    "PCIeIncorrectLinkSpeed": (WARNING, "A PCIe link is slower than its ends can be.", RESEAT),
    "PCIeCorrectableError": (WARNING, "PCIe errors were corrected; many of them slow a link down.", LINKS),
    "PCIeUncorrectableError": (CRITICAL, "A PCIe error could not be corrected; data of a device may be lost.", LINKS),
    "PCIeFatalError": (CRITICAL, "A PCIe error stopped a link.", LINKS),
    "PlatformError": (CRITICAL, "The machine reports an error.", "Look in its own log."),
    "PlatformErrorAtLocation": (CRITICAL, "The machine reports an error of a part.", "Look at that part."),
    "UnhandledExceptionDetectedWithNoDetails": (CRITICAL, "A processor met an error that nothing handled.", ""),
    "UnhandledExceptionDetected": (CRITICAL, "A processor met an error that nothing handled.", ""),
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
    "SensorFailure": (WARNING, "A sensor has failed: what it measured is not known.", "Have the part looked at."),
    "InvalidSensorReading": (WARNING, "A sensor gives readings that cannot be right.", ""),
    "ReadingCritical": (CRITICAL, "A reading is in its critical range.", COOLING),
    "ReadingWarning": (WARNING, "A reading is outside of its normal range.", COOLING),
    "ReadingNoLongerCritical": (OK, "A reading is no longer critical.", ""),
    "ReadingRemoved": (WARNING, "A reading is no longer offered.", ""),
}  # fmt: skip

ENVIRONMENTAL: dict[str, MessageText] = {
    "FanInserted": (OK, "A fan was put in.", ""),
    "FanRemoved": (CRITICAL, "A fan was taken out.", "Put it in again: the others must cool alone."),
    "FanFailed": (CRITICAL, "A fan has failed.", "Replace it; until then the others must cool alone."),
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
    "PowerSupplyInserted": (OK, "A power supply was put in.", ""),
    "PowerSupplyRemoved": (
        WARNING,
        "A power supply was taken out.",
        "Put it in again: nothing stands in for it.",
    ),
    "PowerSupplyFailed": (CRITICAL, "A power supply has failed.", "Replace it: nothing stands in for it."),
    "PowerSupplyPredictiveFailure": (WARNING, "A power supply will fail soon.", "Replace it."),
    "PowerSupplyWarning": (WARNING, "A power supply works worse than it should.", "Replace it soon."),
    "PowerSupplyCritical": (CRITICAL, "A power supply is in a critical state.", "Replace it."),
    "PowerSupplyRestored": (OK, "A power supply works again.", ""),
    "PowerSupplyPowerGood": (OK, "A power supply gives power.", ""),
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

FABRIC_REGISTRIES: dict[str, dict[str, MessageText]] = {
    "Fabric": FABRIC,
    "Platform": PLATFORM,
    "SensorEvent": SENSOR,
    "Sensor": SENSOR,
    "Environmental": ENVIRONMENTAL,
    "Power": POWER,
    "H3Falcon": FALCON,
}

RESOURCE: dict[str, MessageText] = {
    "ResourceCreated": (OK, "Something new is there: a device was put in, or something was made.", ""),
    "ResourceRemoved": (WARNING, "Something is no longer there: a device was taken out, or something was removed.", ""),
    "ResourceChanged": (OK, "Something of the resource changed. The site reads it anew.", ""),
    "ResourceSelfTestCompleted": (OK, "A part finished its self-test.", ""),
    "ResourceSelfTestFailed": (CRITICAL, "A part failed its self-test.", "Have the part looked at."),
    "ResourceStatusChangedOK": (OK, "A part is well again.", ""),
    "ResourceStatusChangedWarning": (WARNING, "A part asks for attention.", "Open the thing the event is about."),
    "ResourceStatusChangedCritical": (CRITICAL, "A part is in a critical state.", "Open the thing the event is about."),
    "ResourceStateChanged": (OK, "A part changed its state, such as from absent to enabled.", ""),
    "ResourcePoweredOn": (OK, "A part was switched on.", ""),
    "ResourcePoweringOn": (OK, "A part is being switched on.", ""),
    "ResourcePoweredOff": (WARNING, "A part was switched off.", ""),
    "ResourcePoweringOff": (OK, "A part is being switched off.", ""),
    "ResourcePaused": (OK, "A part was paused.", ""),
    "ResourceErrorThresholdExceeded": (CRITICAL, "A part counted more errors than it may.", "Look at its counters."),
    "ResourceErrorThresholdCleared": (OK, "A part counts few errors again.", ""),
    "ResourceErrorsDetected": (WARNING, "A part met errors.", "Look at its counters."),
    "ResourceErrorsCorrected": (OK, "The errors of a part were corrected.", ""),
    "ResourceWarningThresholdExceeded": (WARNING, "A part is beyond its threshold for a warning.", ""),
    "ResourceWarningThresholdCleared": (OK, "A part is below its threshold for a warning again.", ""),
    "ResourceVersionIncompatible": (WARNING, "A part has a firmware that does not fit the others.", "Update it."),
    "URIForResourceChanged": (OK, "A resource has another address on the BMC.", ""),
    "LicenseAdded": (OK, "A licence was added.", ""),
    "LicenseChanged": (OK, "A licence was changed.", ""),
    "LicenseExpired": (WARNING, "A licence has run out.", ""),
    "TestMessage": (OK, "Somebody sent a message to try out events.", ""),
    "AggregationSourceDiscovered": (OK, "The BMC found another one that it can speak for.", ""),
}

TASK: dict[str, MessageText] = {
    "TaskStarted": (OK, "Work that takes a while began on the BMC.", ""),
    "TaskProgressChanged": (OK, "Work on the BMC went on.", ""),
    "TaskCompletedOK": (OK, "Work on the BMC ended well.", ""),
    "TaskCompletedWarning": (WARNING, "Work on the BMC ended, with warnings.", "Look at the operation it belongs to."),
    "TaskAborted": (CRITICAL, "Work on the BMC ended with errors.", "Look at the operation it belongs to."),
    "TaskCancelled": (WARNING, "Work on the BMC was cancelled.", ""),
    "TaskRemoved": (WARNING, "The BMC forgot about some work of its own.", ""),
    "TaskPaused": (WARNING, "Work on the BMC was paused.", ""),
    "TaskResumed": (OK, "Work on the BMC goes on after a pause.", ""),
}

LOG: dict[str, MessageText] = {
    "LogCleared": (WARNING, "Somebody emptied a log of the BMC.", ""),
    "LogServiceCleared": (WARNING, "Somebody emptied a log of the BMC.", ""),
    "LogFull": (WARNING, "A log of the BMC is full and takes no more entries.", "Empty it."),
    "LogEntryAdded": (OK, "A log of the BMC has a new entry.", ""),
    "DiagnosticDataCollected": (OK, "The BMC gathered data for a diagnosis.", ""),
}

UPDATE: dict[str, MessageText] = {
    "TargetDetermined": (OK, "It is known which part an update is for.", ""),
    "AllTargetsDetermined": (OK, "It is known which parts an update is for.", ""),
    "UpdateInProgress": (OK, "A part's firmware is being updated.", ""),
    "UpdateSuccessful": (OK, "A part's firmware was updated.", ""),
    "InstallingOnComponent": (OK, "An image is being written into a part.", ""),
    "TransferringToComponent": (OK, "An image is being sent to a part.", ""),
    "VerifyingAtComponent": (OK, "A part checks the image that it received.", ""),
    "ApplyFailed": (CRITICAL, "A part could not take its new firmware.", "Look at its version, and try again."),
    "TransferFailed": (CRITICAL, "An image could not be sent to a part.", "Try again."),
    "VerificationFailed": (CRITICAL, "A part refused an image.", "Look whether the image is for that part."),
    "ActivateFailed": (CRITICAL, "A part could not start its new firmware.", ""),
    "AwaitToActivate": (WARNING, "New firmware waits to be started.", "Restart the part when it is not in use."),
    "AwaitToUpdate": (WARNING, "An update waits for a person to begin it.", ""),
    "OperationTransitionedToJob": (OK, "An update goes on as a job of its own.", ""),
}

# What a BMC says of requests; an event is made of it where a task ends so.
BASE: dict[str, MessageText] = {
    "Success": (OK, "A request was carried out.", ""),
    "Created": (OK, "A request made a new resource.", ""),
    "NoOperation": (WARNING, "A request asked for what was so already.", ""),
    "GeneralError": (CRITICAL, "The BMC met an error that it does not describe.", "Look in the BMC's own log."),
    "InternalError": (CRITICAL, "The BMC failed within itself.", "If it happens again, restart the BMC."),
    "ServiceTemporarilyUnavailable": (CRITICAL, "The BMC is busy or restarting.", "It is asked again by itself."),
    "ServiceInUnknownState": (CRITICAL, "The BMC no longer takes requests.", "Restart it."),
    "ServiceShuttingDown": (CRITICAL, "The BMC shuts its service down.", ""),
    "ServiceDisabled": (WARNING, "A service of the BMC is switched off.", ""),
    "AccessDenied": (CRITICAL, "The account was refused.", "Look at the account that this site uses on the BMC."),
    "AccountModified": (OK, "An account of the BMC was changed.", ""),
    "AccountRemoved": (OK, "An account of the BMC was removed.", ""),
    "AccountNotModified": (WARNING, "An account of the BMC could not be changed.", ""),
    "PasswordChangeRequired": (CRITICAL, "An account must change its password before it can do anything.", ""),
    "NoValidSession": (CRITICAL, "A request came without a session of the BMC.", ""),
    "InsufficientPrivilege": (CRITICAL, "The account may not do what was asked.", "Give it the role it needs."),
    "SessionLimitExceeded": (CRITICAL, "The BMC has no room for another session.", "End sessions that nobody uses."),
    "SessionTerminated": (OK, "A session of the BMC ended.", ""),
    "EventSubscriptionLimitExceeded": (CRITICAL, "The BMC takes no more hearers of its events.", "Remove some."),
    "EventBufferExceeded": (WARNING, "The BMC had more events than it can keep for a hearer.", ""),
    "SubscriptionTerminated": (OK, "A subscription of events ended.", ""),
    "ResourceInUse": (WARNING, "Something is in use and cannot be changed now.", ""),
    "ResourceInStandby": (CRITICAL, "A part is in standby and cannot do what was asked.", ""),
    "ResourceExhaustion": (CRITICAL, "The BMC has run out of something it needs.", ""),
    "ResourceNotFound": (CRITICAL, "A request was about something that is not there.", ""),
    "ResourceMissingAtURI": (CRITICAL, "A request was about an address that has nothing.", ""),
    "ResourceCannotBeDeleted": (CRITICAL, "Something cannot be removed.", ""),
    "ResourceAtUriUnauthorized": (CRITICAL, "The BMC itself was refused by another service.", ""),
    "ConditionInRelatedResource": (WARNING, "Something that belongs to this part needs attention.", ""),
    "PropertyNotWritable": (WARNING, "A request tried to change what cannot be changed.", ""),
    "PropertyUnknown": (WARNING, "A request had a property that the BMC does not know.", ""),
    "PropertyMissing": (WARNING, "A request lacked a property.", ""),
    "PropertyValueTypeError": (WARNING, "A request had a value of the wrong type.", ""),
    "PropertyValueFormatError": (WARNING, "A request had a value in the wrong form.", ""),
    "PropertyValueNotInList": (WARNING, "A request had a value that is not among those allowed.", ""),
    "ActionNotSupported": (CRITICAL, "The BMC does not know the action that was asked for.", ""),
    "ActionParameterMissing": (CRITICAL, "A request lacked a parameter of an action.", ""),
    "PreconditionFailed": (CRITICAL, "Something had changed since it was read; the request was not carried out.", ""),
    "QueryParameterOutOfRange": (WARNING, "A request asked beyond the end of a list.", ""),
    "MalformedJSON": (CRITICAL, "A request was no JSON.", ""),
    "OperationFailed": (WARNING, "Something that the BMC asked another service for failed.", ""),
    "OperationTimeout": (WARNING, "Something that the BMC asked another service for took too long.", ""),
    "OperationNotAllowed": (WARNING, "What was asked for cannot be done now.", ""),
    "ChassisPowerStateOnRequired": (CRITICAL, "The chassis must be on for what was asked.", "Switch it on."),
    "ChassisPowerStateOffRequired": (CRITICAL, "The chassis must be off for what was asked.", ""),
    "SettingsFailed": (WARNING, "Settings could not be applied.", ""),
    "ResetRequired": (WARNING, "A change is in force only after a restart.", ""),
    "ResetRecommended": (WARNING, "A restart is recommended.", ""),
    "HeaderInvalid": (CRITICAL, "A request had a header that the BMC refuses.", ""),
    "InvalidObject": (CRITICAL, "A request had an address that is none.", ""),
    "UndeterminedFault": (CRITICAL, "A fault that cannot be told more precisely.", ""),
    "CreateLimitReachedForResource": (CRITICAL, "Of this kind no more can be made.", ""),
    "ComponentInstalled": (OK, "A part was put in.", ""),
    "ComponentRemoved": (WARNING, "A part was taken out.", ""),
    "ConnectionLost": (WARNING, "The BMC lost a connection of its own.", ""),
    "RegistryNotFound": (OK, "A message comes from a registry that the BMC does not have.", ""),
}

STORAGE: dict[str, MessageText] = {
    "DriveFailure": (CRITICAL, "A drive has failed.", "Replace it; its data may be lost."),
    "DriveInserted": (OK, "A drive was put in.", ""),
    "DriveRemoved": (WARNING, "A drive was taken out.", ""),
    "DriveOK": (OK, "A drive is well.", ""),
    "DrivePredictiveFailure": (WARNING, "A drive will fail soon.", "Copy its data and replace it."),
    "DriveOffline": (CRITICAL, "A drive does not answer.", "Seat it again, or replace it."),
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
    "PowerButtonPressed": (OK, "Somebody pressed the power button.", ""),
    "DCPowerOn": (OK, "The machine was switched on.", ""),
    "DCPowerOff": (WARNING, "The machine was switched off.", ""),
    "ACPowerLost": (CRITICAL, "The machine lost its mains power.", "Look at the circuit."),
    "SELEntryAdded": (OK, "The system event log has a new entry.", ""),
    "EventLogCleared": (WARNING, "Somebody emptied the event log.", ""),
}

HEARTBEAT: dict[str, MessageText] = {"RedfishServiceFunctional": (OK, "The BMC says that it works.", "")}

SERVICE_REGISTRIES: dict[str, dict[str, MessageText]] = {
    "ResourceEvent": RESOURCE,
    "TaskEvent": TASK,
    "LogService": LOG,
    "Update": UPDATE,
    "Base": BASE,
    "StorageDevice": STORAGE,
    "OpenBMC": BMC,
    "HeartbeatEvent": HEARTBEAT,
}
