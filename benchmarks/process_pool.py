"""Processes that compute runs of an experiment, several at a time."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from quartet.die_with import die_with


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of processes, which have one thread each and end with this process."""
    # One thread also for the tokenizer, whose threads cost more than tokenizing such short texts.
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    return ProcessPoolExecutor(processes, mp_context=context, initializer=die_with, initargs=(os.getpid(),))
