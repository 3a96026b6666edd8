"""Lines to learn from, where any will do."""

SENTENCES = [
    f"{who} {does} {what} ."
    for who in ("le chat", "un chien", "la reine", "Zoë")
    for does in ("voit", "mange", "garde")
    for what in ("la pomme", "le pain", "une fleur", "l'arbre", "tout")
]
"""Sixty lines to learn from."""
