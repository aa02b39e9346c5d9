"""The README's commands are those that continuous integration runs, and the package says what it needs."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import gradflow

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
DISTRIBUTION = {"sklearn": "scikit-learn"}


def commands(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("python3 -m venv")]


def test_readme_has_one_command_to_run_and_one_to_test():
    assert [line.split(" && ")[-1] for line in commands(README)] == [
        ".venv/bin/gradflow run polarization",
        ".venv/bin/pytest",
    ]


def test_ci_runs_the_commands_of_the_readme():
    run = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line.removesuffix(" || exit 1") for line in run if line.startswith("python3 -m venv")] == commands(README)


def test_contributing_gives_the_same_test_command():
    assert commands((ROOT / "CONTRIBUTING.md").read_text()) == commands(README)[1:]


def requirements(names: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", name)[0].lower() for name in names}


def test_every_import_is_declared():
    extras = PROJECT["optional-dependencies"]
    declared = requirements(PROJECT["dependencies"]) | requirements(extras["data"]) | {"gradflow"}
    found = set()
    for path in (ROOT / "gradflow").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            found |= {module.split(".")[0] for module in modules}
    assert {DISTRIBUTION.get(name, name) for name in found - sys.stdlib_module_names} - declared == set()


def test_testing_pulls_no_pytorch():
    extras = PROJECT["optional-dependencies"]
    heavy = {"torch", "transformers"}
    assert not heavy & requirements(PROJECT["dependencies"])
    assert {name for name, needs in extras.items() if heavy & requirements(needs)} <= {"bench", "parity"}


def test_one_version_everywhere():
    cited = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    newest = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    assert {PROJECT["version"], newest, *cited} == {gradflow.__version__}
