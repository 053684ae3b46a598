"""Every speed or size figure that a document quotes comes from a command here."""
