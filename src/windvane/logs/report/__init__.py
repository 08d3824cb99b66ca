"""Reports about logs: each is described once, printed by its command and written as an HTML page."""
