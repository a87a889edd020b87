"""The pages of the hardware and the picture of it."""
