"""Small games over MCP, a leaderboard of policies, and an arena in which policies play against each other."""
