# SPDX-License-Identifier: Apache-2.0
"""The installed Python package: version, types, licenses, and the code in the documentation."""

import importlib.metadata
import inspect
import pathlib
import re
import subprocess
import sys
import tarfile

import nanobind.stubgen
import pytest
import regard
import scikit_build_core.build

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(document):
    """The Python code blocks of a document."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_python_code_of_the_readme_runs():
    lines = blocks("README.md")
    assert len(lines) == 1 and len(lines[0].splitlines()) == 3
    names = {}
    exec(compile(lines[0], "README.md", "exec"), names)
    assert names["context"].shape == names["q"].shape


def test_every_block_of_the_python_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    lines = blocks("docs/guide/python.md")
    assert len(lines) >= 4
    for number, block in enumerate(lines):
        if "regard.torch" in block or "regard.transformers" in block:
            continue  # tests/frameworks has PyTorch
        exec(compile(block, f"docs/guide/python.md, block {number}", "exec"), names)


def test_the_version_matches_the_sources():
    declared = re.search(r"project\(regard VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert regard.__version__ == declared == importlib.metadata.version("regard")


def test_the_package_declares_its_requirements():
    needed = importlib.metadata.requires("regard")
    assert [name for name in needed if "extra" not in name] == ["numpy>=1.23.2"]
    extras = {extra: [name.split(";")[0].strip() for name in needed if f'"{extra}"' in name.replace("'", '"')]
              for extra in importlib.metadata.metadata("regard").get_all("Provides-Extra")}
    assert extras == {"torch": ["torch>=2.6"], "transformers": ["torch>=2.6", "transformers>=5"], "notebook": ["notebook>=7"]}


def test_the_package_contains_its_licenses_and_types():
    names = {str(file) for file in importlib.metadata.files("regard")}
    assert {"regard/py.typed", "regard/_regard.pyi", "regard/jax.py"} <= names
    for text in ("LICENSE", "THIRD_PARTY.md"):
        assert any(name.endswith("licenses/" + text) for name in names), names
    assert not any(name.endswith((".cpp", ".h", ".a")) for name in names)
    [texts] = [file.read_text() for file in importlib.metadata.files("regard") if file.name == "THIRD_PARTY.md"]
    [nanobinds] = [file for file in importlib.metadata.files("nanobind") if file.name == "LICENSE"]
    assert nanobinds.read_text().strip() in texts  # the module contains nanobind's code


def test_the_source_distribution_contains_only_what_the_build_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    archive = tarfile.open(tmp_path / scikit_build_core.build.build_sdist(str(tmp_path)))
    names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names} == {
        "CHANGELOG.md", "CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md",
        "THIRD_PARTY.md", "cmake", "include", "pyproject.toml", "python", "src", "web"}
    [facts] = [archive.extractfile(name).read().decode() for name in archive.getnames() if name.endswith("/PKG-INFO")]
    assert re.findall("^Requires-Dist: ([^;\n]*)$", facts, re.MULTILINE) == ["numpy>=1.23.2"]
    listed = subprocess.run(["git", "ls-files", "cmake", "include", "python", "src", "web"], capture_output=True, text=True,
                            check=True).stdout.split()
    assert set(listed) <= names


@pytest.mark.parametrize("repository", ["", "somebody/regard"])
def test_the_addresses_are_those_of_the_repository_that_builds_the_package(tmp_path, monkeypatch, repository):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    facts = (tmp_path / scikit_build_core.build.prepare_metadata_for_build_wheel(str(tmp_path)) / "METADATA").read_text()
    addresses = dict(re.findall("^Project-URL: (.*), https://github.com/somebody/regard(.*)$", facts, re.MULTILINE))
    assert addresses == ({"Homepage": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md",
                          "Issues": "/issues"} if repository else {})
    assert facts.count("Project-URL") == len(addresses)


def test_the_stub_is_current():
    generator = nanobind.stubgen.StubGen(module=regard._regard, quiet=True)
    generator.put(regard._regard)
    checked_in = (ROOT / "python" / "regard" / "_regard.pyi").read_text(encoding="utf-8")
    assert checked_in == generator.get(), "python -m nanobind.stubgen -m regard._regard -o python/regard/_regard.pyi"


def test_every_public_name_is_documented():
    for name, compiled in vars(regard._regard).items():
        # Parts of regard.distributed are not in the package itself.
        public = getattr(regard, name, compiled)
        if not name.startswith("_") and callable(public):
            assert public.__doc__, name
            assert not hasattr(regard, name) or inspect.signature(public), name


@pytest.fixture(name="cache", scope="module")
def fixture_cache(tmp_path_factory):
    """mypy's cache, which all its runs share."""
    return tmp_path_factory.mktemp("mypy")


def check_types(folder, cache, *arguments):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=folder)


def test_the_package_is_typed(tmp_path, cache):
    sources = sorted(path.stem for path in (ROOT / "python" / "regard").glob("[a-z]*.py"))
    modules = [word for name in sources if name not in ("torch", "transformers", "distributed_torch") for word in ("-m", f"regard.{name}")]
    done = check_types(tmp_path, cache, "-m", "regard", *modules)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_correct_calls_and_rejects_wrong_ones(tmp_path, cache):
    use = tmp_path / "typed_calls.py"
    use.write_text((ROOT / "tests" / "python" / "typed_calls.py").read_text(encoding="utf-8"), encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import regard.onnx\n"
                     "regard.attention(b'', b'', b'', window=3)\n"
                     "regard.attention(b'', b'')\n"
                     "regard.attend()\n"
                     "regard.onnx.attention(b'', b'')\n"
                     "regard.show([[1.0]], 3)\n"
                     "regard.show([[1.0]], color_scale='log')\n"
                     "regard.attention(b'', b'', b'', is_causal=True)\n"
                     "regard.attention(b'', b'', b'', causal='left')\n"
                     "regard.attention(b'', b'', b'', key_lengths='57')\n"
                     "regard.attention(b'', b'', b'', return_lse=True).entropy\n", encoding="utf-8")

    done = check_types(tmp_path, cache, use)
    assert done.returncode == 0, done.stdout + done.stderr
    done = check_types(tmp_path, cache, wrong)
    assert [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line] == ["2", "3", "4", "5", "5", "5", "6", "7", "8", "8", "9", "10", "11"], done.stdout
