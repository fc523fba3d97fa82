// SPDX-License-Identifier: Apache-2.0
//
// A program that uses regard::io alone: the JSON of one member.
// Read next: ../run.sh.
#include "regard/io/json_writer.h"

int main() {
  regard::JsonWriter json;
  json.begin_object();
  json.string("name", "regard");
  json.end_object();
  return json.take() == "{\n  \"name\": \"regard\"\n}\n" ? 0 : 1;
}
