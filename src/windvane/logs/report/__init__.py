"""What people see of an analysis of a log: one description, printed by the commands and written as a page."""
