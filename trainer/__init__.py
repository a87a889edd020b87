"""The program of a real benchmark run: PyTorch training and link measurements, reported as events."""
