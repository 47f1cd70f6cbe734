"""Published systems as scenarios of the simulator, one file each: settings with their source, and what is assumed."""
