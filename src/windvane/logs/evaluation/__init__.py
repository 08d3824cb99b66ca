"""What would another policy have earned? Off-policy evaluation on a log."""
