"""Placers: where the module processes of a run are started. One file per `runtime.kind` with processes."""
