"""Maintenance of the hardware: firmware, power, location LEDs, logs of BMCs."""
