"""Architectures: each file holds one, its configuration above its module; `catalog` is the only registry."""
