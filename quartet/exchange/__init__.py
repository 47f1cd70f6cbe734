"""Trajectories as files: export of a run's trajectories, import of demonstrations. Formats: docs/exchange.md."""

from quartet.exchange.base import Writer
from quartet.exchange.chat import ChatWriter
from quartet.exchange.jsonl import JsonlWriter
from quartet.exchange.parquet import ParquetWriter

WRITERS: dict[str, type[Writer]] = {"jsonl": JsonlWriter, "parquet": ParquetWriter, "chat": ChatWriter}
