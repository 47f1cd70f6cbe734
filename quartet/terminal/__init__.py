"""Output to a terminal. Quartet prints text from models, web pages and copied runs, which must not control the
terminal. Therefore `say` and `console` escape control characters, and commands print only through them."""
