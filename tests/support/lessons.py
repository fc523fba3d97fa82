# SPDX-License-Identifier: Apache-2.0
"""The lessons that the program lists. Tests that are parametrized with these names cover every new lesson."""

import json

from program import succeed

LESSONS = [lesson["name"] for lesson in json.loads(succeed("lesson", "--json"))["lessons"]]
# why-scale has histograms instead of a sentence's matrices.
OF_SENTENCES = [name for name in LESSONS if name != "why-scale"]
