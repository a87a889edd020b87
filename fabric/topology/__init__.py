"""The pages of the hardware and the topology picture."""
