"""The order of the modules, and that what is public is documented."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

import relfrog
from relfrog.cli import cli

PACKAGE = Path(relfrog.__file__).parent
ROOT = Path(__file__).parents[1]

#: The way of the data: each module may import only from those above it.
ORDER = """
_version errors names models threads
sources.base sources.duck sources.files sources.rows sources.sql
sources.postgresql sources.mysql sources.sqlite sources
ahead staging coltypes keys proposals timecols mapping flags keyplan planning layout writing
folders records importing
dataset labels tasks adding
times kernels interchange graph routes resolution walking sampling loading
matching entities
targets.base targets.columns targets.sql targets.postgresql targets.mysql targets.files targets
outputs
ngrams text values encodings fitting features frames columns history config popularity
nn.links nn.sums nn.messages nn.roles nn.encoders nn.layer nn.atomic nn.dependency nn.heads
nn.ranking nn.model nn
memory runfiles novelties preparing describing evaluation checkpoints diagnosing callbacks
baselines.base baselines.boosting baselines.past baselines.rankers baselines.cells
baselines.streams baselines.aggregates baselines.featuring baselines.trees baselines
training lists runs blending auto beside fits learning tampering usage certifying
resampling importance explaining differences
inspecting drawing findings table_checks leak_checks task_checks checking
console progress summary
reporting.colours reporting.markup reporting.placing reporting.schema_graph reporting.charts
reporting.past_graph reporting.material reporting.keeping reporting.examples
reporting.gathering reporting.words
reporting.sections reporting.sections.answer reporting.sections.schema
reporting.sections.training reporting.sections.dependencies reporting.sections.curves
reporting.sections.lists reporting.sections.mistakes
reporting.sections.predictions reporting.sections.worth reporting.sections.explained
reporting.sections.made reporting.page reporting
demo testing
published studies places worker jobs tallies cells charts structures renderings tuning experiments
submitting
completion commandline report_commands run_commands experiment_commands cli __main__
""".split()


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path
    del found["__init__"]  # it re-exports everything, on demand
    return found


def imports(path: Path) -> set[str]:
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # What is imported for its type alone is not there when the program runs.
    tree.body = [
        n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("relfrog"):
            stem = node.module.removeprefix("relfrog").lstrip(".")
            names |= {stem} if stem else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                a.name.removeprefix("relfrog.") for a in node.names if a.name.startswith("relfrog.")
            }
    return names


def test_the_order_lists_every_module_once() -> None:
    assert sorted(ORDER) == sorted(modules())


@pytest.mark.parametrize("name", ORDER)
def test_each_module_knows_only_those_before_it(name: str) -> None:
    above = set(ORDER[: ORDER.index(name)])
    known = {i for i in imports(modules()[name]) if i in ORDER}
    assert known <= above, f"{name} imports {sorted(known - above)}, which come later"


def test_no_import_goes_unseen() -> None:
    for name, path in modules().items():
        assert imports(path) - {""} <= set(ORDER), name


def test_every_public_name_is_documented() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for name in relfrog.__all__:
        value = getattr(relfrog, name)
        if name != "__version__":
            assert inspect.getdoc(value), name
            assert f"`{name}" in reference, f"{name} is not in docs/reference.md"


def test_every_command_and_option_is_documented() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        assert f"## relfrog {name}" in commands
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option in commands, f"{name} {option}"


@pytest.mark.parametrize("page", ["commands.md", "reference.md", "settings.md"])
def test_generated_pages_are_up_to_date(page: str) -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if sys.version_info[:2] == (3, 11):  # signatures are spelled differently by other versions
        assert text == generate.PAGES[page](), "run: python docs/generate.py"


def test_public_names_of_modules_exist() -> None:
    for name in ORDER:
        if name == "__main__":
            continue
        module = importlib.import_module(f"relfrog.{name}")
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.{public}"


def test_no_file_names_a_machine() -> None:
    forbidden = ["/work" + "/", "/ro" + "ot/", "file" + "pythonhosted", "pypi" + ".org"]
    for path in [*PACKAGE.rglob("*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for word in forbidden:
            assert word not in text, f"{path.name}: {word}"
