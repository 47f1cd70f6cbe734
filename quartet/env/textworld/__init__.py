"""Games of TextWorld: their files, and sessions that play them."""
