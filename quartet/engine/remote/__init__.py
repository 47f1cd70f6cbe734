"""Engines that use a third-party inference server over HTTP."""
