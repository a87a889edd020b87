"""What the room's templates say in words."""
