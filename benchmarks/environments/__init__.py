"""Speed of the environment cluster: MiniWoB++ pages against Selenium and BrowserGym, and sessions that wait."""
