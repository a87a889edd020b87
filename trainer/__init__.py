"""What torchrun starts on a host: real PyTorch training and measurements of links, told as events."""
