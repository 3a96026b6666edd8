"""Frozen, strict settings and their way from and to TOML."""

from headway.config.settings import Settings
from headway.config.toml import located, override, read_toml, validated, write_toml

__all__ = ["Settings", "located", "override", "read_toml", "validated", "write_toml"]
