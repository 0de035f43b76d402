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
    "export",
    "bridge",
    "serve",
    "cli",
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


TORCH = {"model", "losses", "training", "export"}
"""The folders that may use tensors; all others see a model through `skypart.embedding.Embedder`."""


def test_torch_stays_in_the_model_the_export_the_losses_and_the_training() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "torch" for name in names):
                wrong.append(file.relative_to(PACKAGE))
    allowed = {file for file in wrong if file.parts[0] in TORCH or file.name == "doctor.py"}
    assert set(wrong) == allowed


def imports_when_loaded(node: ast.AST) -> set[str]:
    """What a module imports when it is loaded: not for type checking, not in functions."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            found |= {child.module, *(f"{child.module}.{alias.name}" for alias in child.names)}
        elif isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        found |= imports_when_loaded(child)
    return found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    root = PACKAGE.parent
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in PACKAGE.rglob("*.py")
    }
    left = {
        name: {other for other in imports_when_loaded(ast.parse(file.read_text("utf-8"))) if other in files} - {name}
        for name, file in files.items()
    }
    while True:
        free = {name for name, needed in left.items() if not needed & left.keys()}
        if not free:
            break
        left = {name: needed for name, needed in left.items() if name not in free}
    assert not left, "these import each other, directly or through others"


@pytest.mark.parametrize("folder", ["maps", "position"])
def test_maps_and_positions_do_not_depend_on_evaluation(folder: str) -> None:
    wrong = [f.name for f in (PACKAGE / folder).rglob("*.py") if imported_folders(f) & {"evaluation", "training"}]
    assert not wrong
