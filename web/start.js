// SPDX-License-Identifier: Apache-2.0
//
// The last module of a page that does not compute: it draws the page. Read next: page.js, live/live.js.
import { draw } from "./page.js";

draw();
