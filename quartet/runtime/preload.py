"""Imports of the fork server before it forks, so that modules start with their libraries loaded. Other processes must
not import this file.

OpenMP and OpenBLAS must not start threads here, because forked children would not inherit the threads. Both libraries
read OMP_NUM_THREADS when they are loaded. A child sets its own number of threads (`quartet.runtime.start_process`).
"""

import gc
import os
import shutil
import traceback
from multiprocessing.util import Finalize

import setproctitle  # first: it locates the command line from the environment's address, which changes below

from quartet.native.memory_allocator import use_huge_pages

os.environ["OMP_NUM_THREADS"] = "1"
use_huge_pages()
gc.disable()  # searching the imported objects, which stay, for garbage takes a fifth of the time

FAULT = ""
"""Traceback of an import that failed. `multiprocessing` would ignore an `ImportError`, and die of any other error."""
try:
    import transformers.generation.utils  # every causal language model imports it
    import transformers.tokenization_python  # noqa: F401
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    import quartet.engine.server
    import quartet.engine.torch_engine
    import quartet.env.host
    import quartet.manager.manager
    import quartet.rollout.worker
    import quartet.train.trainer  # noqa: F401
    from quartet.registry import names

    names("env")  # reads the entry points of all packages, once
    get_checkpoint_conversion_mapping("")  # compiles a thousand patterns for names of weights, once
except Exception:  # noqa: BLE001  (`start_process` raises it in the supervisor)
    FAULT = traceback.format_exc()

setproctitle.setproctitle("quartet fork server")
# At this server's end, not at that of a fork. The supervisor does the same, unless it is killed.
Finalize(None, shutil.rmtree, args=(os.environ["QUARTET_FORK_SERVER_FOLDER"], True), exitpriority=-100)
gc.freeze()  # otherwise garbage collection in a child would write to every shared page, which copies the page
gc.enable()
