"""Output to a terminal. Models, web pages and copied runs write text that Quartet prints; none of it may control the
terminal. Everything that Quartet prints goes through `say` or `console`."""
