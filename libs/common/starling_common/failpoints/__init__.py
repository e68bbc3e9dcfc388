"""Points at which a test makes a stage raise, or kills or suspends its process."""
