# SPDX-License-Identifier: Apache-2.0
"""The URLs in the package's metadata: those of the GitHub repository whose workflow builds it (pyproject.toml). A
package that is built elsewhere has none."""

import os


def dynamic_metadata(settings, project):
    del settings, project
    repository = os.environ.get("GITHUB_REPOSITORY")
    if not repository:
        return {}
    home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
    return {"urls": {"Homepage": home, "Documentation": f"{home}/tree/main/docs", "Changelog": f"{home}/blob/main/CHANGELOG.md",
                     "Issues": f"{home}/issues"}}


def dynamic_wheel(settings):
    """A wheel built elsewhere from the source package has no URLs."""
    del settings
    return {"urls": True}
