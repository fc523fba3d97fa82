// SPDX-License-Identifier: Apache-2.0
//
// Python's pip, started without a shell to download one package: the only thing in this program that opens a
// connection.
//
//     requirements with a hash ── python3 -I -m pip download ── folder/wheel/
//
// Read next: pip.cpp, pull.cpp.
#pragma once

#include <functional>
#include <string>

namespace regard::program {

// requirements: lines for pip, each with its --hash. folder: an empty folder; all that pip writes lands in it, the
// download in its subfolder "wheel". watch is called some ten times a second; when it throws, pip is ended.
// Variables such as https_proxy and pip's own settings reach pip; the interpreter is $REGARD_PYTHON or
// /usr/bin/python3. Throws std::runtime_error: the reason in one line.
void pip_download(const std::string& requirements, const std::string& folder, const std::function<void()>& watch);

}  // namespace regard::program
