"""Every test runs with the shapes in signatures checked, on one thread."""

from jaxtyping import install_import_hook

hook = install_import_hook("headway", "beartype.beartype")

import torch  # noqa: E402  # the hook must be in place before headway is imported

torch.set_num_threads(1)
