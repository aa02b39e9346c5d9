"""The house: floors, circles, sizes, docstrings, what may be printed or set, and modules that are abstract or final."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import equinox as eqx
import pytest

import gradflow

PACKAGE = Path(gradflow.__file__).parent

# A file imports from its own room (gradflow/<room>) and from lower floors. `__init__` is the roof over floors 1 to 8;
# only the command line stands on it.
FLOORS = {
    1: ("types", "errors", "progress", "citation"),
    2: ("activations", "losses", "trajectory", "callables", "devices", "files"),
    3: ("models", "tasks", "problem"),
    4: ("flow", "descent", "compare"),
    5: ("diagnostics", "laws", "schedules"),
    6: ("sweep", "observables", "pretrained"),
    7: ("plot",),
    8: ("experiments", "report"),
    9: ("cli",),
    10: ("__main__",),
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
ABSTRACT_FIELDS = ("eqx.Abstract", "AbstractVar", "AbstractClassVar", "ClassVar", "typing.ClassVar")
LAZY = ("matplotlib", "xarray", "zarr", "sklearn", "rich", "tyro", "torch", "transformers")


def module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path) -> dict[str, ast.Module]:
    return {module_name(root, path): ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def nodes_run(node: ast.AST, *, lazy: bool = True) -> Iterator[ast.AST]:
    """Every node below `node`, without `if TYPE_CHECKING` blocks, and without function bodies unless `lazy`."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child) or (not lazy and isinstance(child, ast.FunctionDef | ast.Lambda)):
            continue
        yield child
        yield from nodes_run(child, lazy=lazy)


def imported(tree: ast.AST, known: set[str], *, lazy: bool = True) -> Iterator[str]:
    """The most specific module that each import names: `from gradflow.flow import solve` is gradflow.flow.solve."""
    for node in nodes_run(tree, lazy=lazy):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import at line {node.lineno}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def floor_faults(root: Path) -> list[str]:
    trees = sources(root)
    faults = []
    for module, tree in trees.items():
        here = room(module)
        if not here:
            continue
        if here not in FLOOR:
            faults.append(f"{module} is in no room that the floors know")
            continue
        for target in imported(tree, set(trees)):
            there = room(target)
            if target.split(".")[0] != root.name or there == here:
                continue
            if not there and FLOOR[here] < FLOOR["cli"]:
                faults.append(f"{module} imports the roof, {target}")
            elif there and FLOOR.get(there, 99) >= FLOOR[here]:
                faults.append(f"{module} (floor {FLOOR[here]}) imports {target} (floor {FLOOR.get(there)})")
    return faults


def circle_faults(root: Path) -> list[str]:
    trees = sources(root)
    edges = {module: set(imported(tree, set(trees))) & set(trees) for module, tree in trees.items()}
    done: set[str] = set()
    faults: list[str] = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            faults.append(" -> ".join((*path[path.index(module) :], module)))
        elif module not in done:
            for target in sorted(edges[module]):
                visit(target, (*path, module))
            done.add(module)

    for module in trees:
        visit(module, ())
    return faults


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    return (function.end_lineno or 0) - function.body[documented].lineno + 1


def size_faults(root: Path) -> list[str]:
    faults = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if (lines := len(text.splitlines())) > 500:
            faults.append(f"{path.name} has {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := body_lines(node)) > 60:
                faults.append(f"{path.name}: the body of {node.name} has {lines} lines")
    return faults


def docstring_faults(root: Path) -> list[str]:
    faults = []
    for module, tree in sources(root).items():
        if ast.get_docstring(tree) is None:
            faults.append(module)
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if named and ast.get_docstring(node) is None:
                faults.append(f"{module}.{node.name}")
    return faults


def effect_faults(root: Path) -> list[str]:
    """Settings changed, text printed, or heavy packages imported where the house does not allow it."""
    faults = []
    for module, tree in sources(root).items():
        heavy = [name for name in imported(tree, set(), lazy=False) if name.split(".")[0] in LAZY]
        faults += [f"{module} imports {name} when it is imported itself" for name in heavy]
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if room(module) not in ("cli", "__main__", "progress") and "print" in calls:
            faults.append(f"{module} prints")
        if room(module) != "cli" and "jax.config.update" in calls:
            faults.append(f"{module} changes a setting of JAX")
    return faults


def bodies(package: str) -> dict[tuple[str, str], ast.ClassDef]:
    """Every module-level class of an importable package, as (module, name) -> source."""
    root = Path(importlib.import_module(package).__file__ or "").parent
    return {(m, n.name): n for m, tree in sources(root).items() for n in tree.body if isinstance(n, ast.ClassDef)}


def is_abstract(cls: type) -> bool:
    waiting = (getattr(cls, name, ()) for name in ("__abstractvars__", "__abstractclassvars__"))
    return inspect.isabstract(cls) or any(waiting)


def implemented(body: ast.ClassDef) -> set[str]:
    return {
        node.name
        for node in body.body
        if isinstance(node, ast.FunctionDef) and "abstract" not in " ".join(map(ast.unparse, node.decorator_list))
    }


def fields(body: ast.ClassDef) -> set[str]:
    annotated = [n for n in body.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    return {ast.unparse(n.target) for n in annotated if not ast.unparse(n.annotation).startswith(ABSTRACT_FIELDS)}


def module_classes(package: str) -> list[type]:
    root = importlib.import_module(package)
    names = [info.name for info in pkgutil.walk_packages(root.__path__, f"{package}.") if "__main__" not in info.name]
    found = (vars(importlib.import_module(name)).values() for name in [package, *names])
    unique = {id(c): c for values in found for c in values if inspect.isclass(c) and issubclass(c, eqx.Module)}
    return [cls for cls in unique.values() if cls.__module__.split(".")[0] == package]


def module_faults(package: str) -> list[str]:
    known = bodies(package)
    faults = []
    for cls in module_classes(package):
        bases = [base for base in cls.__mro__[1:] if issubclass(base, eqx.Module) and base is not eqx.Module]
        faults += [f"{cls.__name__} subclasses {b.__name__}, which is concrete" for b in bases if not is_abstract(b)]
        body = known.get((cls.__module__, cls.__name__))
        own = [known[b.__module__, b.__name__] for b in bases if (b.__module__, b.__name__) in known]
        if body is None:
            continue
        for base in own:
            for name in sorted(implemented(body) & implemented(base) - {"__init__"}):
                faults.append(f"{cls.__name__}.{name} overrides {base.name}.{name}")
        owners = [b.name for b in (body, *own) if fields(b) or "__init__" in implemented(b)]
        if len(owners) > 1:
            faults.append(f"fields and __init__ of {cls.__name__} are spread over {', '.join(owners)}")
    return faults


CHECKS = (floor_faults, circle_faults, size_faults, docstring_faults, effect_faults)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_house(check: Callable[[Path], list[str]]):
    assert check(PACKAGE) == []


def test_modules_are_abstract_or_final():
    assert module_classes("gradflow"), "the walk found no module to look at"
    assert module_faults("gradflow") == []


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


BROKEN = {
    floor_faults: {
        "losses.py": "from gradflow.models.base import Thing",
        "tasks/linear.py": "from gradflow.models.base import Thing",
        "models/base.py": "def late():\n    import gradflow",
        "cellar.py": "",
    },
    circle_faults: {
        "flow/__init__.py": "from gradflow.flow.solve import solve as solve",
        "flow/solve.py": "from gradflow.flow import field",
        "flow/field.py": "from gradflow.flow import solve",
    },
    size_faults: {"losses.py": "x = 1\n" * 501, "errors.py": "def long():\n" + "    x = 1\n" * 61},
    docstring_faults: {"losses.py": '"""Losses."""\n\ndef square():\n    return 1\n', "errors.py": ""},
    effect_faults: {"plot/heads.py": "import matplotlib.pyplot\nprint(1)\njax.config.update('x', 1)"},
}


FAULTS = {floor_faults: 4, circle_faults: 1, size_faults: 2, docstring_faults: 2, effect_faults: 3}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_house_flags_a_broken_tree(check: Callable[[Path], list[str]], tmp_path: Path):
    assert len(check(write(tmp_path / "gradflow", BROKEN[check]))) == FAULTS[check]


def test_house_accepts_a_sound_tree(tmp_path: Path):
    sound = {
        "__init__.py": '"""Roof."""\nfrom gradflow.flow.solve import solve as solve\n',
        "flow/__init__.py": '"""Flow."""\nfrom gradflow.flow.solve import solve as solve\n',
        "flow/solve.py": '"""Solve."""\nfrom gradflow.errors import FlowError\nfrom gradflow.flow import field\n',
        "flow/field.py": '"""Field."""\nimport numpy\n\ndef draw():\n    """Draw."""\n    import matplotlib\n',
        "errors.py": '"""Errors."""\n\nclass FlowError(ValueError):\n    """One."""\n',
    }
    root = write(tmp_path / "gradflow", sound)
    assert [fault for check in CHECKS for fault in check(root)] == []


BROKEN_MODULES = """
import abc
import equinox as eqx

class AbstractHead(eqx.Module):
    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self): ...

    def double(self):
        return 2 * self.size

class Final(AbstractHead):
    size: int

    def __call__(self):
        return self.size

class Overrides(AbstractHead):
    size: int

    def __call__(self):
        return self.size

    def double(self):
        return 3

class Extends(Final):
    more: int
"""


def test_module_walk_flags_overrides_and_concrete_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "broken_house", {"__init__.py": "", "heads.py": BROKEN_MODULES})
    monkeypatch.syspath_prepend(tmp_path)
    assert module_faults("broken_house") == [
        "Overrides.double overrides AbstractHead.double",
        "Extends subclasses Final, which is concrete",
        "fields and __init__ of Extends are spread over Extends, Final",
    ]


def test_contributing_shows_these_floors():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (PACKAGE.parent / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    shown = {int(floor): set(re.findall(r"`(\w+)`", rooms)) for floor, rooms in rows}
    assert shown == {floor: set(rooms) for floor, rooms in FLOORS.items()}
