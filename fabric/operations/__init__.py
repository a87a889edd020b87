"""Operations on the hardware: requests, rules, state."""
