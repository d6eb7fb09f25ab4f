"""Places of a program that unpickle: found in its syntax tree, under whatever name it gives to a loader.

Names are followed through imports, assignments of names (`p = pickle`), constant `import_module`, `__import__` and
`getattr`, and calls of classes (`CPickleSerializer().loads`). What cannot be followed is taken for the worst: `loads`
of anything but the modules that are known to be harmless is a place.
"""

from __future__ import annotations

import ast
from typing import Final, NamedTuple

MODULES: Final = frozenset({"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"})
"""Last parts of names of modules that unpickle, by these:"""
LOADERS: Final = frozenset(
    {"load", "loads", "Unpickler", "_Unpickler", "_load", "_loads", "open", "Shelf", "DbfilenameShelf"}
)
ANYWHERE: Final = frozenset(
    {
        *("Unpickler", "_Unpickler", "ForkingPickler", "read_pickle", "PyExtensionType", "read_command"),
        *("CPickleSerializer", "PickleSerializer", "CloudPickleSerializer", "AutoSerializer", "MarshalSerializer"),
        *("_RestrictedUnpickler",),
    }
)
"""Last parts of names that unpickle wherever they come from: of pandas, PyArrow and PySpark above all."""
HARMLESS: Final = frozenset({"json", "orjson", "tomllib"})
"""Modules whose `loads` does not."""
MODULE: Final = "<module>"
ALIASES_MAX: Final = 5
"""Assignments that are followed one after another."""
NUMPY_LOAD_PLAIN: Final = 2
"""Positional arguments of `numpy.load` before `allow_pickle`."""


class Place(NamedTuple):
    """A place that unpickles, or gives a loader a name of one's own."""

    line: int
    function: str
    """Qualified name; `<module>` outside of any."""


def unpickling_places(source: str) -> list[Place]:
    """All of a module, in order; one for each line."""
    tree = ast.parse(source)
    finder = _Finder(_aliases(tree))
    finder.visit(tree)
    return sorted(finder.found)


class _Finder(ast.NodeVisitor):
    def __init__(self, aliases: dict[str, set[str]]) -> None:
        self.found: set[Place] = set()
        self._aliases = aliases
        self._inside: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_definition(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_definition(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module, names = node.module or "", [alias.name for alias in node.names]
        if _unpickle({f"{module}.{name}" for name in names}) or ("*" in names and module.split(".")[-1] in MODULES):
            self._note(node)

    def visit_Name(self, node: ast.Name) -> None:
        if _unpickle(_names(node, self._aliases)):
            self._note(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _unpickle(_names(node, self._aliases)):
            self._note(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _unpickle(_names(node, self._aliases)) or self._allows_pickles(node) or self._reads_broadcast(node):
            self._note(node)
        self.generic_visit(node)

    def _allows_pickles(self, node: ast.Call) -> bool:
        """True if a call, of NumPy most likely, says that it may unpickle; or cannot be seen not to."""
        if _names(node.func, self._aliases) & {"numpy.load", "numpy.lib.npyio.load"}:
            hidden = len(node.args) > NUMPY_LOAD_PLAIN or any(word.arg is None for word in node.keywords)
            if hidden or any(isinstance(argument, ast.Starred) for argument in node.args):
                return True
        given = [word.value for word in node.keywords if word.arg == "allow_pickle"]
        return any(not (isinstance(value, ast.Constant) and value.value is False) for value in given)

    def _reads_broadcast(self, node: ast.Call) -> bool:
        """True if a call makes a broadcast variable of PySpark from its pickle."""
        is_broadcast = "Broadcast" in {name.rpartition(".")[2] for name in _names(node.func, self._aliases)}
        return is_broadcast and any(word.arg in ("path", "sock_file", None) for word in node.keywords)

    def _visit_definition(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    def _note(self, node: ast.expr | ast.stmt) -> None:
        self.found.add(Place(node.lineno, ".".join(self._inside) or MODULE))


def _unpickle(names: set[str]) -> bool:
    """True if one of these dotted names is one of a loader."""
    for name in names:
        module, _, last = name.rpartition(".")
        if last in ANYWHERE or (last in LOADERS and module.rpartition(".")[2] in MODULES):
            return True
        if last == "loads" and module not in HARMLESS:
            return True
    return False


def _aliases(tree: ast.Module) -> dict[str, set[str]]:
    """Names that the module gives to others, in whatever scope → dotted names of what they may stand for."""
    found: dict[str, set[str]] = {"getattr": {"getattr"}, "__import__": {"__import__"}}
    assigned: list[tuple[str, ast.expr]] = []
    for node in ast.walk(tree):
        assigned += _assigned(node)
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found.setdefault(name, set()).add(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, set()).add(f"{node.module or ''}.{alias.name}")
    for _ in range(ALIASES_MAX):  # of aliases, in whatever order they are written
        before = sum(map(len, found.values()))
        for name, value in assigned:
            if name in found or _root(value) in found:
                found.setdefault(name, set()).update(_names(value, found))
        if sum(map(len, found.values())) == before:
            break
    return found


def _assigned(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Names that a node assigns, and the values."""
    if isinstance(node, ast.Assign):
        return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    return []


def _root(node: ast.expr) -> str:
    """The name that an expression begins with; the function's, of a call by name."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.expr, aliases: dict[str, set[str]]) -> set[str]:
    """The dotted names that an expression may have; a call has that of its function and `()`."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, {node.id})
    if isinstance(node, ast.Attribute):
        return {f"{name}.{node.attr}" for name in _names(node.value, aliases)}
    if not isinstance(node, ast.Call):
        return {""}
    functions = _names(node.func, aliases)
    texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if texts and functions & {"importlib.import_module", "__import__"}:
        return {texts[0]}
    if texts and "getattr" in functions:
        return {f"{name}.{texts[0]}" for name in _names(node.args[0], aliases)}
    return {f"{name}()" for name in functions}
