"""What the fork server loads before it forks: everything that a module imports. Import it in no other process.

OpenMP and OpenBLAS must start no thread here, since a forked child would have none of them: they read the variable
below when they are loaded. A child sets its own number of threads (`quartet.runtime.start_process`).
"""

import gc
import os

import setproctitle  # first: it finds the command line by where the environment is, which moves below

os.environ["OMP_NUM_THREADS"] = "1"

import quartet.engine.server
import quartet.engine.torch_engine
import quartet.env.host
import quartet.manager.manager
import quartet.rollout.worker
import quartet.train.trainer  # noqa: F401

setproctitle.setproctitle("quartet fork server")
gc.collect()
gc.freeze()  # else the children's garbage collection would touch, and so copy, every page that they share
