"""Finds places for faults in Solidity sources, and builds sources in which each fault can be selected at run
time.

Places and types come from the compiler's syntax tree. In a copy, an expression `a < b` becomes `(mutant(17) ?
a <= b : a < b)`, an optional statement `x;` becomes `{if (!mutant(18)) x;}`; lines keep their numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

REMAPPINGS = ["@openzeppelin/=node_modules/@openzeppelin/", "solady/=node_modules/solady/src/"]
CHOICE = "src/Mutant.sol"
CHOOSER = """// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

function planted(uint256 number) view returns (bool) {
    return uint160(address(block.coinbase)) == (1 << 32) + number;
}

/// @dev Said to be pure, so that pure functions may ask.
function mutant(uint256 number) pure returns (bool) {
    function(uint256) view returns (bool) asked = planted;
    function(uint256) pure returns (bool) ask;
    assembly ("memory-safe") {
        ask := asked
    }
    return ask(number);
}
"""
OTHER = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
}  # fmt: skip
NAMES = {
    "<": "boundary", "<=": "boundary", ">": "boundary", ">=": "boundary",
    "==": "equality", "!=": "equality", "&&": "logic", "||": "logic",
}  # fmt: skip
Tree = dict[str, Any]
EXPRESSION = "(mutant({number}) ? {new} : {old})"
STATEMENT = "{{if (!mutant({number})) {{{old}}}}}"
MODIFIER = "{old} modifier {new} {{ if (mutant({number})) {{ _; }} else {block} }}"
VALUE = r"u?int\d+|bytes\d+|address|bool"
WITH_BODY = ("FunctionDefinition", "ModifierDefinition")


class Edit(NamedTuple):
    """Replacement of `start` to `end` for a mutant."""

    start: int
    end: int
    new: str
    form: str = EXPRESSION


@dataclass(frozen=True)
class Mutant:
    """One fault. The copy selects it by number; its change names it independently of its line."""

    number: int
    id: str
    file: str
    line: int
    change: str
    edits: tuple[Edit, ...]
    digest: str  # of all sources


def trees_of(root: Path, files: list[str]) -> dict[str, Tree]:
    """The compiler's syntax trees. Raises RuntimeError for sources that it refuses."""
    settings = {"remappings": REMAPPINGS, "evmVersion": "prague", "outputSelection": {"*": {"": ["ast"]}}}
    sources = {file: {"content": (root / file).read_text()} for file in files}
    asked = json.dumps({"language": "Solidity", "sources": sources, "settings": settings})
    done = subprocess.run(
        ["bin/solc", "--standard-json"], cwd=root, input=asked, capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    faults = [e["formattedMessage"] for e in said.get("errors", ()) if e["severity"] == "error"]
    if faults:
        raise RuntimeError(
            "the sources do not compile, so there is nothing to plant in:\n" + "\n".join(faults)
        )
    return {file: said["sources"][file]["ast"] for file in files}


def mutants_of(root: Path, files: list[str]) -> list[Mutant]:
    """All mutants, numbered from 1 in order of files and places."""
    trees = trees_of(root, files)
    digest = hashlib.sha256(b"".join((root / file).read_bytes() for file in files)).hexdigest()
    found: list[Mutant] = []
    used = Counter[str]()
    for file in files:
        data = (root / file).read_bytes()
        for function, fault in Places(data, trees[file]).all():
            line = data[: fault.edits[0].start].count(b"\n") + 1
            name = f"{Path(file).name}:{line}:{fault.operator}"
            change = f"{Path(file).name} {function}: {fault.before} -> {fault.after or 'nothing'}"
            used.update((name, change))
            name += f"#{used[name]}" if used[name] > 1 else ""
            change += f" ({used[change]})" if used[change] > 1 else ""
            found.append(Mutant(len(found) + 1, name, file, line, change, fault.edits, digest))
    return found


class Fault(NamedTuple):
    """One place and its change."""

    operator: str
    before: str
    after: str
    edits: tuple[Edit, ...]


class Places:
    """Places for faults in one file."""

    def __init__(self, data: bytes, tree: Tree) -> None:
        self.data, self.tree = data, tree

    def all(self) -> Iterator[tuple[str, Fault]]:
        """Every fault with the name of its function."""
        bodies = [n for n in descendants(self.tree) if n["nodeType"] in WITH_BODY and n.get("body")]
        modifiers = {n["name"]: n for n in bodies if n["nodeType"] == "ModifierDefinition"}
        for function in bodies:
            name = function["name"] or function["kind"]
            for used in function.get("modifiers", ()):
                if used["modifierName"]["name"] in modifiers:
                    yield name, self.unmodified(used, modifiers[used["modifierName"]["name"]])
            # Arguments of a revert are not places to mutate.
            for node in descendants(function["body"], without=("RevertStatement", "InlineAssembly")):
                for fault in getattr(self, "in_" + node["nodeType"], lambda _: ())(node):
                    yield name, fault

    def unmodified(self, used: Tree, modifier: Tree) -> Fault:
        """Adds a new modifier to the function, which does nothing if the mutant is selected."""
        name = modifier["name"]
        called = Edit(*span(used), self.text(used)[len(name) :], name + "_{number}{new}")
        own = Edit(*span(modifier), name + "_{number}" + self.text(modifier["parameters"]), MODIFIER)
        return Fault("modifier", self.text(used), "", (called, own))

    def fault(self, operator: str, node: Tree, after: str) -> Fault:
        """Replaces a node by another expression, or removes a statement."""
        start, end = span(node)
        if not after:
            end = self.data.index(b";", end) + 1
        return Fault(
            operator, self.text(node), after, (Edit(start, end, after, EXPRESSION if after else STATEMENT),)
        )

    def in_BinaryOperation(self, node: Tree) -> Iterator[Fault]:
        operator, other = node["operator"], OTHER.get(node["operator"])
        left, right = self.text(node["leftExpression"]), self.text(node["rightExpression"])
        if other is None or is_constant(node):
            return
        yield self.fault(NAMES.get(operator, "arithmetic"), node, f"{left} {other} {right}")
        if operator in ("&&", "||"):
            yield self.fault("left", node, left)
            yield self.fault("right", node, right)
        elif is_constant(node["rightExpression"]):
            yield self.fault("literal", node, f"{left} {operator} (1 + {right})")
        elif is_constant(node["leftExpression"]):
            yield self.fault("literal", node, f"(1 + {left}) {operator} {right}")

    def in_IfStatement(self, node: Tree) -> Iterator[Fault]:
        condition = node["condition"]
        yield self.fault("guard", condition, "false")
        if condition["nodeType"] != "BinaryOperation":
            yield self.fault("negated", condition, f"!({self.text(condition)})")

    def in_Conditional(self, node: Tree) -> Iterator[Fault]:
        yield self.fault("branch", node, self.text(node["trueExpression"]))
        yield self.fault("branch", node, self.text(node["falseExpression"]))

    def in_ExpressionStatement(self, node: Tree) -> Iterator[Fault]:
        inner = node["expression"]
        target = kind(inner["leftHandSide"]) if inner["nodeType"] == "Assignment" else ""
        if not re.search(
            "calldata|storage pointer|tuple", target
        ):  # these must be assigned before they are read
            yield self.fault("dropped", node, "")

    def in_EmitStatement(self, node: Tree) -> Iterator[Fault]:
        yield self.fault("dropped", node, "")

    def in_FunctionCall(self, node: Tree) -> Iterator[Fault]:
        given = node["arguments"]
        if node["kind"] == "typeConversion" or node.get("names"):
            return
        for one, other in itertools.pairwise(given):
            a, b = self.text(one), self.text(other)
            if a != b and kind(one) == kind(other) and re.fullmatch(VALUE, kind(one)):
                edits = Edit(*span(one), b), Edit(*span(other), a)
                yield Fault("swapped", self.text(node), f".. {b}, {a} ..", edits)

    def in_Literal(self, node: Tree) -> Iterator[Fault]:
        if node["kind"] == "bool":
            yield self.fault("flag", node, "false" if node["value"] == "true" else "true")

    def in_UnaryOperation(self, node: Tree) -> Iterator[Fault]:
        if node["operator"] in ("++", "--"):
            other = self.text(node).replace("++", "@@").replace("--", "++").replace("@@", "--")
            yield self.fault("count", node, other)

    def in_Identifier(self, node: Tree) -> Iterator[Fault]:
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", node["name"]) and re.fullmatch(r"uint\d+", kind(node)):
            yield self.fault("constant", node, f"(1 + {node['name']})")

    def text(self, node: Tree) -> str:
        """On one line, without comments."""
        start, end = span(node)
        return " ".join(re.sub(r"//[^\n]*", "", self.data[start:end].decode()).split())


def descendants(tree: Any, without: tuple[str, ...] = ()) -> Iterator[Tree]:
    """All nodes of the tree, and the loops' steps aside: a loop without end tests nothing."""
    if isinstance(tree, list):
        for part in tree:
            yield from descendants(part, without)
    elif isinstance(tree, dict) and tree.get("nodeType") not in without:
        if "nodeType" in tree:
            yield tree
        for name, part in tree.items():
            if name != "loopExpression":
                yield from descendants(part, without)


def span(node: Tree) -> tuple[int, int]:
    start, length, _ = map(int, node["src"].split(":"))
    return start, start + length


def kind(node: Tree) -> str:
    return str(node["typeDescriptions"]["typeString"])


def is_constant(node: Tree) -> bool:
    """True if it is a number literal."""
    return kind(node).startswith("int_const")


def instrumented(root: Path, mutants: Iterable[Mutant]) -> dict[str, str]:
    """Sources, and what the tests import, by name, with these mutants selectable."""
    texts = {CHOICE: CHOOSER}
    for file in [*root.glob("src/**/*.sol"), *root.glob("test/**/*.sol")]:
        name = file.relative_to(root).as_posix()
        if name.endswith(".t.sol"):
            continue
        data = file.read_bytes()
        edits = [(edit, m.number) for m in mutants if m.file == name for edit in m.edits]
        text = Copy(data, edits).text() if edits else data.decode()
        if edits:
            text = re.sub(r"(pragma [^\n]*)", r'\1 import {mutant} from "../Mutant.sol";', text, count=1)
        texts[name] = text
    return texts


class Copy:
    """A file with its edits, which may be adjacent or nested."""

    def __init__(self, data: bytes, edits: list[tuple[Edit, int]]) -> None:
        self.data = data
        self.places: dict[tuple[int, int], list[tuple[Edit, int]]] = {}
        for edit, number in edits:
            self.places.setdefault((edit.start, edit.end), []).append((edit, number))
        self.order = sorted(self.places, key=lambda place: (place[0], -place[1]))

    def text(self) -> str:
        return self._render(0, len(self.data), self.order)

    def _render(self, start: int, end: int, order: list[tuple[int, int]]) -> str:
        out, at, index = "", start, 0
        while index < len(order):
            place = order[index]
            inside = [other for other in order[index + 1 :] if other[1] <= place[1]]
            out += self.data[at : place[0]].decode()
            out += self._chosen(place, self._render(*place, inside))
            at = place[1]
            index += 1 + len(inside)
        return out + self.data[at:end].decode()

    def _chosen(self, place: tuple[int, int], old: str) -> str:
        """Text of a place: `old` unless a mutant is selected; `block`: its body with the mutants in it."""
        block = " ".join(re.sub(r"//[^\n]*", "", "".join(old.partition("{")[1:])).split())
        for edit, number in self.places[place]:
            new = edit.new.replace("{number}", str(number))
            old = edit.form.format(number=number, new=new, old=old, block=block)
        return old
