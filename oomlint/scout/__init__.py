"""Which files are worth a full parse."""
