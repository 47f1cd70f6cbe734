"""The dashboard: a read-only web page over run directories, served by `quartet view`.

A page is one file in `pages/` with a function `routes()`, and one template. It asks `viewed_run(request)` for its run
and answers with `render(request, "NAME.html", ...)`. The content security policy allows neither script nor style
inside a page: what moves lies in `static/`, and what varies in size is an attribute of an SVG element.
"""
