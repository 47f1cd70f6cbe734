"""Export of a run's trajectories to files, and import of demonstrations. docs/exchange.md explains the formats."""

from quartet.exchange.base import Writer
from quartet.exchange.chat import ChatWriter
from quartet.exchange.jsonl import JsonlWriter
from quartet.exchange.parquet import ParquetWriter
from quartet.exchange.revisions import RevisionWriter

WRITERS: dict[str, type[Writer]] = {
    "jsonl": JsonlWriter,
    "parquet": ParquetWriter,
    "chat": ChatWriter,
    "revisions": RevisionWriter,
}
