# SPDX-License-Identifier: Apache-2.0
"""Shares of the tests, so that ./check can run several processes of pytest: REGARD_TEST_SHARE=1/2 is the second of two,
every other test."""

import os


def pytest_collection_modifyitems(config, items):
    share, count = (int(part) for part in os.environ.get("REGARD_TEST_SHARE", "0/1").split("/"))
    others = [item for place, item in enumerate(items) if place % count != share]
    items[:] = items[share::count]
    config.hook.pytest_deselected(items=others)
