// The labels of series in the reader's language: of quantities and of error counters. Sensors have their own names.
import { _ } from "../../site/language.js";

const LABELS = {
  Temperature: _("Temperature"),
  "Fan speed": _("Fan speed"),
  Power: _("Power"),
  Energy: _("Energy"),
  Voltage: _("Voltage"),
  Current: _("Current"),
  Link: _("Link"),
  "Link width": _("Link width"),
  "Link speed": _("Link speed"),
  Utilisation: _("Utilisation"),
  Receive: _("Receive"),
  Transmit: _("Transmit"),
  "Fatal error count": _("Fatal error count"),
  "Non fatal error count": _("Non fatal error count"),
  "Correctable error count": _("Correctable error count"),
  "Replay count": _("Replay count"),
  "Replay rollover count": _("Replay rollover count"),
  "NAK received count": _("NAK received count"),
  "NAK sent count": _("NAK sent count"),
  "Bad TLP count": _("Bad TLP count"),
  "Bad DLLP count": _("Bad DLLP count"),
  "L0 to recovery count": _("L0 to recovery count"),
  "Flow control timeout errors": _("Flow control timeout errors"),
  "Unsupported request count": _("Unsupported request count"),
  "Clock rate": _("Clock rate"),
  Humidity: _("Humidity"),
  "Memory in use": _("Memory in use"),
  "Corrected memory errors": _("Corrected memory errors"),
  "Uncorrected memory errors": _("Uncorrected memory errors"),
};

/** Return a label in the reader's language; that of a component's metrics is 'DIMM 1: Temperature'. */
export function seriesLabel(label) {
  const quantity = label.split(": ").at(-1);
  return label.slice(0, label.length - quantity.length) + (LABELS[quantity] ?? quantity);
}
