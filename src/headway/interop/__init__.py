"""Headway's models in other engines."""
