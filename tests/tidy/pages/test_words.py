"""Names and texts of the files: no empty names, nothing of one machine, no citation of what does not exist."""

from __future__ import annotations

import re

from tests.tidy.project_files import ROOT, project_files

EMPTY_NAMES = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"})
# With a gap, so that this file does not hold what it looks for.
PATHS_OF_A_MACHINE = ("w~ork", "r~oot", "opt/d~ev", "opt/p~ypi", "opt/w~heels")
HOSTS_OF_REGISTRIES = ("p~ypi.org", "python~hosted.org", "npm~js.org", "proxy.go~lang.org")


def _any_of(spelled_with_a_gap: tuple[str, ...]) -> str:
    return "|".join(re.escape(text.replace("~", "")) for text in spelled_with_a_gap)


MACHINE_PATHS = re.compile(rf"(?<![\w.}})>/])/(?:{_any_of(PATHS_OF_A_MACHINE)})\b")
REGISTRIES = re.compile(_any_of(HOSTS_OF_REGISTRIES))
CITED_IN_CODE = re.compile(r"(?<![\w/.-])(?:docs/[\w./-]+\.md|[A-Z]{4,}\.md)")
CITED_IN_PAGES = re.compile(
    r"`((?:storage|changelog|materializer|spark_integration|src|tests|docs|deploy|benchmarks|examples|\.ci)/[\w./-]*)`"
)
LINKS = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")
MADE_BY_RUNNING = frozenset({"benchmarks/results/", "benchmarks/results/smoke.json", "benchmarks/results/report.md"})


def texts() -> list[tuple[str, str]]:
    """(path from the root, text) of every file that is text."""
    found: list[tuple[str, str]] = []
    for path in project_files():
        content = path.read_bytes()
        if b"\0" not in content:
            found.append((str(path.relative_to(ROOT)), content.decode(errors="replace")))
    return found


def test_the_files_of_the_project_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in project_files()}
    assert {"pyproject.toml", "storage/errors.py", "tests/tidy/pages/test_words.py", ".ci/run"} <= names


def test_no_file_has_a_name_that_says_nothing() -> None:
    of_pyflink = {ROOT / "src" / "varvite" / path for path in ("datastream/utils.py", "util/java_utils.py")}
    named = [path for path in project_files() if EMPTY_NAMES & set(path.stem.lower().split("_"))]
    assert [str(path) for path in named if path not in of_pyflink] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [(name, match.group()) for name, text in texts() for match in MACHINE_PATHS.finditer(text)] == []


def test_no_file_names_a_package_registry() -> None:
    """The registry is the business of the machine's own configuration."""
    assert [(name, match.group()) for name, text in texts() for match in REGISTRIES.finditer(text)] == []


def test_machine_paths_and_registries_are_recognised() -> None:
    for spelled in PATHS_OF_A_MACHINE:
        text = spelled.replace("~", "")
        assert MACHINE_PATHS.search(f'"/{text}/main"')
        assert MACHINE_PATHS.search(f"cd /{text}")
        assert not MACHINE_PATHS.search(f"{{directory}}/{text}/x")
        assert not MACHINE_PATHS.search(f"/{text}place")
    assert all(REGISTRIES.search(f"https://{host.replace('~', '')}/x") for host in HOSTS_OF_REGISTRIES)


def test_a_page_that_code_cites_exists() -> None:
    cited = {
        (name, page) for name, text in texts() if name.endswith((".py", ".sh")) for page in CITED_IN_CODE.findall(text)
    }
    assert sorted((name, page) for name, page in cited if not (ROOT / page).exists()) == []


def test_a_file_that_a_page_cites_exists() -> None:
    missing: list[tuple[str, str]] = []
    for name, text in texts():
        if not name.endswith(".md"):
            continue
        missing += [(name, path) for path in CITED_IN_PAGES.findall(text) if not (ROOT / path).exists()]
        missing += [(name, link) for link in LINKS.findall(text) if not (ROOT / name).parent.joinpath(link).exists()]
    assert [(name, path) for name, path in missing if path not in MADE_BY_RUNNING] == []


ANCHORS = re.compile(r"(docs/[\w./-]+\.md)#([\w-]+)")
LINKED_ANCHORS = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
HEADINGS = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCES = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SECTIONS_OF_NO_PAGE = re.compile("d~esign [0-9]".replace("~", ""), re.IGNORECASE)
MEASUREMENTS = re.compile(r"\d\s*(?:ms\b|%)")
ARCHITECTURE_LINES_MAX = 250
SENTENCE_WORDS_MAX = 30
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"*_]*\s+")
INLINE = re.compile(r"`[^`]*`")
LINK_TARGET = re.compile(r"\]\([^)]*\)")


def anchors_of(page: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them: lower case, punctuation dropped, spaces as hyphens."""
    headings = HEADINGS.findall(FENCES.sub("", page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sentences_of(page: str) -> list[str]:
    """Sentences of paragraphs and list items; code, tables and headings are none. Inline code counts as a word."""
    paragraphs = [""]
    for line in FENCES.sub("", page).splitlines():
        if not line.strip() or line.lstrip().startswith(("|", "#")):
            paragraphs.append("")
        elif item := ITEM.match(line):
            paragraphs.append(line[item.end() :])
        else:
            paragraphs[-1] += " " + line.strip()
    plain = [LINK_TARGET.sub("]", INLINE.sub("code", paragraph)) for paragraph in paragraphs]
    return [sentence for paragraph in plain for sentence in SENTENCE_END.split(paragraph) if sentence.strip()]


def words_of(sentence: str) -> int:
    """Number of words; signs between them are none."""
    return sum(any(character.isalnum() for character in word) for word in sentence.split())


def test_a_cited_anchor_exists() -> None:
    missing: list[tuple[str, str]] = []
    for name, text in texts():
        cited = [(ROOT / page, anchor) for page, anchor in ANCHORS.findall(text)]
        if name.endswith(".md"):
            here = ROOT / name
            cited += [(here.parent / page if page else here, anchor) for page, anchor in LINKED_ANCHORS.findall(text)]
        missing += [
            (name, anchor) for page, anchor in cited if not page.exists() or anchor not in anchors_of(page.read_text())
        ]
    assert missing == []


def test_no_text_cites_sections_of_a_page_that_is_not_here() -> None:
    assert [(name, match.group()) for name, text in texts() for match in SECTIONS_OF_NO_PAGE.finditer(text)] == []


def test_architecture_is_a_map() -> None:
    """Measurements are in the notebook, and the design is on the pages of docs/internals."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= ARCHITECTURE_LINES_MAX
    assert MEASUREMENTS.findall(text) == []


def test_sentences_can_be_read_at_once() -> None:
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages += sorted((ROOT / "docs" / "internals").glob("*.md"))
    sentences = [(page.name, sentence) for page in pages for sentence in sentences_of(page.read_text())]
    assert [(name, text) for name, text in sentences if words_of(text) > SENTENCE_WORDS_MAX] == []


def test_anchors_and_sentences_are_recognised() -> None:
    page = "# A, B\n\nOne `a b` is. Two\nare - (see [x](y z)).\n\n- Item one.\n  More.\n\n| a. b |\n"
    page += "```text\n# No.\n```\n## CHOOSE-AHEAD\n"
    assert anchors_of(page) == {"a-b", "choose-ahead"}
    assert [words_of(sentence) for sentence in sentences_of(page)] == [3, 4, 2, 1]
    assert MEASUREMENTS.findall("5 ms, 6 MiB, 7%") == ["5 ms", "7%"]


def test_architecture_names_every_package() -> None:
    """Its tree has one row per package of the product and per package right below it."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## The tree\n")[2].partition("\n## ")[0]
    listed: dict[str, list[str]] = {}
    for row in re.findall(r"^\| (.+?) \|", section, re.MULTILINE):
        names = re.findall(r"`(\w+)/`", row)
        if "**" in row:
            listed[names[0]] = []
        elif names:
            listed[list(listed)[-1]] += names
    packages = {
        name: sorted(path.parent.name for path in (ROOT / name).glob("*/__init__.py"))
        for name in ("spark_integration", "materializer", "changelog", "storage")
    }
    assert {name: sorted(below) for name, below in listed.items()} == packages
