"""The models: random weights, nothing downloaded."""
