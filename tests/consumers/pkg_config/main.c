/* SPDX-License-Identifier: Apache-2.0
 *
 * A C99 program that knows Regard from pkg-config alone.
 * Read next: ../run.sh, and regard/c_api.h for what else there is. */
#include <regard/c_api.h>
#include <stdio.h>

int main(void) {
  puts(regard_version());
  return 0;
}
