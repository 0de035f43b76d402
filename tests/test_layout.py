"""Data flows one way: a folder of the package imports only from itself and from those before it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "skypart"
FLOW = (
    "geo",
    "drawing",
    "images",
    "datasets",
    "worlds",
    "embedding",
    "model",
    "losses",
    "evaluation",
    "training",
    "experiments",
    "maps",
    "telemetry",
    "position",
    "bridge",
    "serve",
)


def imported_folders(file: Path) -> set[str]:
    """Folders of our package that `file` imports from, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "skypart" and len(part) > 1 and part[1] in FLOW}


@pytest.mark.parametrize("folder", FLOW)
def test_a_folder_imports_only_what_stands_before_it(folder: str) -> None:
    allowed = set(FLOW[: FLOW.index(folder) + 1])
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert files
    wrong = {f.relative_to(PACKAGE): imported_folders(f) - allowed for f in files if imported_folders(f) - allowed}
    assert not wrong


def test_every_folder_is_in_the_flow() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(FLOW)


def module_name(file: Path) -> str:
    parts = ("skypart", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(file: Path, known: set[str]) -> set[str]:
    """Modules of our package that `file` imports, at the top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & known or {node.module} & known
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
    return found


@pytest.mark.parametrize("folder", ["datasets", "evaluation", "worlds"])
def test_modules_do_not_import_each_other_in_a_circle(folder: str) -> None:
    files = {module_name(file): file for file in (PACKAGE / folder).rglob("*.py") if file.name != "__init__.py"}
    imports = {name: imported_modules(file, set(files)) for name, file in files.items()}
    while leaves := {name for name, used in imports.items() if not used}:
        imports = {name: used - leaves for name, used in imports.items() if name not in leaves}
    assert not imports, "these modules are in a circle, or import one"


TORCH = {"model", "losses", "training"}
"""The folders that may use tensors; all others see a model through `skypart.embedding.Embedder`."""


def test_torch_stays_in_the_model_the_losses_and_the_training() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "torch" for name in names):
                wrong.append(file.relative_to(PACKAGE))
    allowed = {file for file in wrong if file.parts[0] in TORCH or file.name == "doctor.py"}
    assert set(wrong) == allowed
