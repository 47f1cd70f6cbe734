"""Dashboard: a read-only website about run directories, served by `quartet view`.

Each page is one file in `pages/` with a function `routes()`, and one template. The file calls `viewed_run(request)` for
its run and `render(request, "NAME.html", ...)` for its response. The content security policy allows no inline script or
style: scripts are in `static/`, and variable sizes are written as attributes of SVG elements.
"""
