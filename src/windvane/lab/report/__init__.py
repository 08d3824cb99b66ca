"""Write reports: self-contained HTML pages."""
