import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "recipes"))  # where a script's own modules are found
