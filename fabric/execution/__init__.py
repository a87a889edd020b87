"""Operations carried out on the hardware by workers."""
