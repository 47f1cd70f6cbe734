"""Output to a terminal. Models, web pages and copied runs write text that Quartet prints; none of it may control the
terminal. All output of Quartet goes through `say` or `console`."""
