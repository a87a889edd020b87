"""The health of PCIe links: their errors, their states, and a verdict with its reasons."""
