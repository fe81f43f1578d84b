"""Every example runs to its end, headless, and what it writes is a valid notebook."""

import json
import subprocess

import nbformat
import pytest

from daemon import BUILD, REPO

FASTER = {"close-the-page": ["-p", "pause=0.01"]}
# not what `reitos run` wrote beside them
EXAMPLES = sorted(p for p in (REPO / "examples").glob("*.ipynb") if not p.match("*.out.ipynb"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, tmp_path):
    out = tmp_path / "out.ipynb"
    command = [BUILD / "reitos", "run", path, "-o", out, *FASTER.get(path.stem, []),
               "--data", tmp_path / "data"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    nb = nbformat.read(out, as_version=4)
    nbformat.validate(nb)
    code = [c for c in nb.cells if c.cell_type == "code"]
    assert code and all(c.execution_count for c in code)
    assert not any(o.output_type == "error" for c in code for o in c.outputs)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_kept_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert not any(c.get("outputs") for c in cells)
