// SPDX-License-Identifier: Apache-2.0
/// @file
/// Defines `REGARD_EXPORT`, which marks the symbols that the shared library exports. All other symbols are hidden.
///
/// Read next: runtime.h (C++), c_api.h (C).
#ifndef REGARD_EXPORT
/// Gives a function or class default visibility. If the macro is already defined, that definition is kept.
#define REGARD_EXPORT __attribute__((visibility("default")))
#endif
