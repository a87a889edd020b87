"""What a host starts: real PyTorch training and measurements of links, told as events."""
