# SPDX-License-Identifier: Apache-2.0
"""Texts of a page that a reader cannot reach: outside the window, or outside a frame that hides them. What scrolls in its own frame is
reached, and so is a truncated word, whose title has the whole."""

CUT_OFF = """() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const own = node.parentElement;
        if (node.data.trim() === '' || own.closest('script, style, svg, .spoken, [hidden]') || !own.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
        let [left, right] = [0, innerWidth];
        for (let one = own; one && one !== document.body; one = one.parentElement) {
            const { overflowX, textOverflow } = getComputedStyle(one);
            const reached = /auto|scroll/.test(overflowX) || (textOverflow === 'ellipsis' && (one.title || one.querySelector('[title]')));
            if (reached) [left, right] = [-Infinity, Infinity];
            if (reached) break;
            if (!/hidden|clip/.test(overflowX)) continue;
            const frame = one.getBoundingClientRect();
            [left, right] = [Math.max(left, frame.left), Math.min(right, frame.right)];
        }
        const range = document.createRange();
        range.selectNodeContents(node);
        if ([...range.getClientRects()].some(box => box.width > 0 && (box.left < left - 1 || box.right > right + 1))) found.push(node.data);
    }
    return found;
}"""


def check_nothing_is_cut_off(page):
    """As a page of 1280 pixels shows it at 400 %: 320 pixels wide, each four by four of the device."""
    assert page.evaluate("[innerWidth, devicePixelRatio]") == [320, 4]
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    assert page.evaluate(CUT_OFF) == []
    # The check finds what is wrong.
    page.evaluate("() => { const one = document.createElement('p'); one.textContent = 'much too wide'; one.style.cssText = 'white-space: nowrap; margin-left: 300px'; document.body.append(one); }")
    assert page.evaluate(CUT_OFF) == ["much too wide"]
