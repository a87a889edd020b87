"""Live readings: their catalogue and frames, and the websocket that sends them to browsers."""
