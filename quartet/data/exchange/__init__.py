"""Trajectories as files: what a run has gathered goes out, demonstrations come in. Formats: docs/exchange.md."""

from quartet.data.exchange.base import Writer
from quartet.data.exchange.chat import ChatWriter
from quartet.data.exchange.jsonl import JsonlWriter
from quartet.data.exchange.parquet import ParquetWriter

WRITERS: dict[str, type[Writer]] = {"jsonl": JsonlWriter, "parquet": ParquetWriter, "chat": ChatWriter}
