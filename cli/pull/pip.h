// SPDX-License-Identifier: Apache-2.0
//
// Runs Python's pip, without a shell, to download one package. Nothing else in this program opens a connection.
//
//     requirements with a hash ── python3 -I -m pip download ── folder/wheel/
//
// Read next: pip.cpp, pull.cpp.
#pragma once

#include <functional>
#include <string>

namespace regard::program {

// requirements: lines for pip, each with its --hash. folder: an empty folder, in which pip writes all its files, the
// download in the subfolder "wheel". watch is called about ten times per second; if it throws, pip is killed.
// Variables such as https_proxy and pip's own settings are passed to pip. The interpreter is $REGARD_PYTHON or
// /usr/bin/python3. Throws std::runtime_error with the reason in one line.
void pip_download(const std::string& requirements, const std::string& folder, const std::function<void()>& watch);

}  // namespace regard::program
