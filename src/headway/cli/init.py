"""`headway init`."""

from pathlib import Path

from headway.errors import FolderError

HEAD = """# A Headway recipe: headway train FILE --out runs/NAME
# Every setting stands here with its meaning and its default. Take the '#' away from what you want to set;
# sizes that you leave open are chosen for your data and your machine.

"""


def command(path: Path = Path("recipe.toml"), /) -> None:
    """Write a recipe to start from, every setting with its meaning and its default.

    Parameters
    ----------
    path
        The file to write.
    """
    if path.exists():
        raise FolderError(f"{path}: already there; choose another name")
    from headway.config import write_toml
    from headway.data.config import DataConfig
    from headway.models.transformer import TransformerConfig
    from headway.recipe import Recipe

    data = DataConfig(source=Path("train.source"), target=Path("train.target"))
    recipe = Recipe(data=data, model=TransformerConfig())
    try:
        path.write_text(HEAD + write_toml(recipe, comments=True), encoding="utf-8")
    except OSError as error:
        raise FolderError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
    print(path)
