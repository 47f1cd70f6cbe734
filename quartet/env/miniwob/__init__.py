"""MiniWoB++: sessions in Chromium, task pages, suites of families, and scripted experts."""
