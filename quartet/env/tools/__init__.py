"""Tools of an environment: connections to servers of tools, and sessions in which a policy calls them."""
