"""The recipes that come with SkyPart: inside an installed package, or in the folder `recipes` of a clone."""

from pathlib import Path

_PACKAGED = Path(__file__).resolve().parent / "recipes"
RECIPES = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[2] / "recipes"
"""Their folder. The build of the wheel copies it into the package (`setup.py`)."""


def find_recipe(name: str | Path) -> Path:
    """The recipe `name`: a file, or one of ours by its name, such as `world` or `recipes/world.toml`.

    Returns the path as given if there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    inside = Path(*path.parts[1:]) if path.parts[:1] == ("recipes",) else path
    ours = RECIPES / (inside if inside.suffix == ".toml" else inside.with_name(f"{inside.name}.toml"))
    return ours if not path.is_absolute() and ours.is_file() else path


def recipe_names() -> list[str]:
    """Names of the recipes that train a model by themselves."""
    return sorted(file.stem for file in RECIPES.glob("*.toml"))
