"""What pyproject.toml cannot say: the wheel gets the recipes and the page's map library, the index a fitting README.

The map library comes from npm, at a pinned version with a pinned hash (`skypart/serve/assets.py`). Set
SKYPART_REPOSITORY_URL while building to point the links of the README on a package index to a hosted repository.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
REPOSITORY = os.environ.get("SKYPART_REPOSITORY_URL", "").rstrip("/")


def install_page_library() -> None:
    """Put the map library of the page into the source tree, verified; nothing happens if it is there already."""
    sys.path.insert(0, str(SOURCE))
    try:
        from skypart.serve import assets

        assets.install()
    finally:
        sys.path.remove(str(SOURCE))


def readme_for_package_index() -> str:
    """The README without relative links: absolute if the repository's address is known, else plain text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if REPOSITORY:
        text = re.sub(r"(!\[[^\]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({REPOSITORY}/raw/main/\2)", text)
        return re.sub(r"(?<!!)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({REPOSITORY}/blob/main/\2)", text)
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]+\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]+\)", r"\1", text)


class BuildWithRecipes(build_py):
    """Adds the recipes and the map library to the package; editable installs use those of the clone."""

    def run(self) -> None:
        """Build the package folder."""
        if not self.editable_mode:
            install_page_library()
            self.data_files  # noqa: B018 - setuptools lists the files at this first use, after they are there
        super().run()
        if not self.editable_mode:
            shutil.copytree(ROOT / "recipes", Path(self.build_lib) / "skypart" / "recipes", dirs_exist_ok=True)


class SourceWithPage(sdist):
    """Adds the map library to the source archive, so that a wheel can be built from it without npm."""

    def run(self) -> None:
        """Write the archive."""
        install_page_library()
        super().run()


setup(
    cmdclass={"build_py": BuildWithRecipes, "sdist": SourceWithPage},
    long_description=readme_for_package_index(),
    long_description_content_type="text/markdown",
    project_urls={"Source": REPOSITORY, "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md"} if REPOSITORY else {},
)
