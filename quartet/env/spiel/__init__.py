"""Games of OpenSpiel, as sessions that policies play."""
