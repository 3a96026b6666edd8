"""`headway info`."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from headway.runtime.cores import read_cores
from headway.runtime.threads import describe


def command() -> None:
    """Print the versions and the machine, for bug reports."""
    import torch

    print(f"headway {version('headway')}")
    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} CPUs")
    for name in ("torch", "tokenizers", "safetensors", "pydantic", "cyclopts", "sacrebleu", "matplotlib"):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name} not installed")
    for index in range(torch.cuda.device_count()):
        print(f"cuda:{index} {torch.cuda.get_device_name(index)}")
    for line in describe(os.environ, read_cores(), torch.get_num_threads()):
        print(line)
