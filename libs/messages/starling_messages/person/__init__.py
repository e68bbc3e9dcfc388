"""The decisions about the messages of one person: triggers, instants, and the outcomes that are reported later."""
