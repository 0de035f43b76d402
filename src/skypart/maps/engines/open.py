"""Open an engine by its name; only this module knows which there are."""

from collections.abc import Callable
from importlib import import_module

from skypart.errors import SkyPartError
from skypart.maps.engines.interface import Engine

ENGINES = {
    "local": "skypart.maps.engines.local:open_local",
    "ray": "skypart.maps.engines.ray_data:open_ray",
}
"""Name -> `module:function`, imported when first used. The function takes the address of the cluster, or ''."""


def register_engine(name: str, opener: str) -> None:
    """Make `--engine name` open with the function `opener`, given as `module:function`."""
    ENGINES[name] = opener


def open_engine(name: str = "local", address: str = "") -> Engine:
    """Open an engine. address: of the cluster it runs on, such as `head:6379`."""
    if name not in ENGINES:
        raise SkyPartError(f"--engine {name}: unknown; choose one of {', '.join(sorted(ENGINES))}")
    module, _, function = ENGINES[name].partition(":")
    opener: Callable[[str], Engine] = getattr(import_module(module), function)
    return opener(address)
