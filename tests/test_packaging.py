"""What is shipped: the wheel works by itself, and the lock files name no host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK_FILES = ("requirements.txt", "requirements-dev.txt")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as its wheel installs it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, *command: str) -> str:
    """Run Python away from the checkout, with the installed package before it."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_has_its_own_prompts(installed: Path) -> None:
    script = (
        "import pi_ls; from pi_ls.prompts import Prompts, SYSTEM, shipped_prompts;"
        "print(pi_ls.__file__); print(shipped_prompts()); print(Prompts().render(SYSTEM))"
    )
    package, prompts, text = run(installed, "-c", script).split("\n", 2)
    assert Path(package) == installed / "pi_ls" / "__init__.py"
    assert Path(prompts) == installed / "pi_ls" / "_prompts"
    assert text.strip()


def test_every_prompt_of_the_checkout_is_in_the_wheel(installed: Path) -> None:
    ours = {path.relative_to(ROOT / "prompts") for path in (ROOT / "prompts").rglob("*.md")}
    shipped = {
        path.relative_to(installed / "pi_ls/_prompts")
        for path in (installed / "pi_ls/_prompts").rglob("*.md")
    }
    assert ours
    assert shipped == ours


def test_the_wheel_is_typed_and_holds_the_demo_s_session(installed: Path) -> None:
    assert (installed / "pi_ls" / "py.typed").is_file()
    output = run(installed, "-m", "pi_ls", "check", str(installed / "pi_ls" / "demo_session.jsonl"))
    assert output.startswith("ok")


def test_the_wheel_holds_the_package_and_nothing_else(installed: Path) -> None:
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"pi_ls"}


@pytest.mark.parametrize("name", LOCK_FILES)
def test_a_lock_file_names_no_host_and_pins_everything_by_hash(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*--(index|extra|find|trusted)", text, re.MULTILINE)
    pinned = re.findall(r"^[A-Za-z0-9_.-]+==\S+", text, re.MULTILINE)
    assert pinned
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block


def test_both_lock_files_agree() -> None:
    runtime, developing = (
        dict(
            re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        )
        for name in LOCK_FILES
    )
    assert runtime.items() <= developing.items()
