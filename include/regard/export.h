/* SPDX-License-Identifier: Apache-2.0
 *
 * REGARD_EXPORT marks what the shared library shows; everything else in it is hidden.
 * Read next: runtime.h (C++), c_api.h (C). */
#ifndef REGARD_EXPORT
#define REGARD_EXPORT __attribute__((visibility("default")))
#endif
