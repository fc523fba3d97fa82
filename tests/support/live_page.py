# SPDX-License-Identifier: Apache-2.0
"""Live pages for tests, put together from the built script and style, a page of `regard explain`, the core and a model."""

import base64
import gzip
import hashlib
import json
import pathlib
import re

from program import PROGRAM, succeed

ASSETS = pathlib.Path(PROGRAM).parent / "src" / "explain"
CORE = pathlib.Path(PROGRAM).parent / "wasm" / "core.wasm"
PIECE = 3 << 14
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def base64_of(data):
    return base64.b64encode(data).decode()


def write_live_page(path, model, text, *arguments, changed=None):
    """The page that begins with the sentence of `regard explain TEXT …`, with the model in the folder `model`; `changed` has
    other contents of its files, by name."""
    changed = changed or {}
    static = succeed("explain", text, "--model", model, *arguments, "--html", "-").decode()
    data = "".join(re.findall(r'<script type="application/json".*?</script>\n', static, re.DOTALL))
    script, style = ((ASSETS / f"page_assets.cpp.{kind}").read_bytes() for kind in ("live_js", "live_css"))
    script_hash, style_hash = (base64_of(hashlib.sha256(one).digest()) for one in (script, style))
    module = gzip.compress(CORE.read_bytes(), mtime=0)
    files = ""
    for name in FILES:
        data_of_file = changed.get(name, (model / name).read_bytes())
        packed = name != "model.safetensors"
        for at in range(0, len(data_of_file), PIECE):
            of_file = 'class="model-piece"' if at else f'class="model-file" data-name="{name}" data-size="{len(data_of_file)}"'
            piece = data_of_file[at:at + PIECE]
            files += f'<p {of_file}{" data-packed" if packed else ""}>{base64_of(gzip.compress(piece, mtime=0) if packed else piece)}</p>\n'
    live = json.dumps({"model": "tiny", "weights": "f32", "errors": {"largest change of a weight": "0.0"}})
    path.write_text(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{script_hash}' 'wasm-unsafe-eval'; \
worker-src blob:; style-src 'sha256-{style_hash}'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{text}</title>
<style>{style.decode()}</style>
</head>
<body>
{data}<script type="application/json" id="live">{live}</script>
<script>{script.decode()}</script>
<div hidden>
<p id="core">{base64_of(module)}</p>
{files}</div>
</body>
</html>
""", encoding="utf-8", newline="")
    return path
