# SPDX-License-Identifier: Apache-2.0
#
# Joins the modules of web/ into one script and writes it, with the style and the SHA-256 of both, as a C++ file.
#
#     cmake -DWEB=web -DMODULES=numbers,kernel,… -DOUTPUT=page_assets.cpp -P embed_page.cmake
#
# A module is a plain ES module, of which this understands two forms and rejects the rest:
#     import { a, b } from "./earlier.js";     on one line; the module stands earlier in MODULES, the line is dropped
#     export function … | const … | let … | class …     the word `export ` is dropped
# Lines of comments are dropped. All modules share one scope, so no two may declare the same name at the beginning of a line.
# Read next: web/page.js, docs/reference/page.md.

cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" modules "${MODULES}")
set(joined "\"use strict\";\n(() => {\n")
set(seen "")
set(names "")
file(GLOB found RELATIVE "${WEB}" "${WEB}/*.js")
foreach(file IN LISTS found)
  string(REGEX REPLACE "\\.js$" "" module "${file}")
  if(NOT module IN_LIST modules)
    message(FATAL_ERROR "${WEB}/${file} is not in the list of modules (src/explain/CMakeLists.txt)")
  endif()
endforeach()
foreach(module IN LISTS modules)
  file(READ "${WEB}/${module}.js" text)
  set(text "\n${text}")
  string(REGEX MATCHALL "\nimport { [a-zA-Z0-9_, ]+ } from \"\\./[a-z_]+\\.js\"" imports "${text}")
  foreach(import IN LISTS imports)
    string(REGEX REPLACE ".*\"\\./([a-z_]+)\\.js\"" "\\1" imported "${import}")
    if(NOT imported IN_LIST seen)
      message(FATAL_ERROR "${module}.js imports ${imported}.js, which does not stand before it in the list of modules")
    endif()
  endforeach()
  string(REGEX REPLACE "\nimport { [a-zA-Z0-9_, ]+ } from \"\\./[a-z_]+\\.js\"[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\nexport (async function|function|const|let|class) " "\n\\1 " text "${text}")
  if(text MATCHES "\n((import|export)[^a-zA-Z0-9_][^\n]*)")
    message(FATAL_ERROR "${module}.js: a form that embed_page.cmake does not understand: ${CMAKE_MATCH_1}")
  endif()
  # Comments stay in web/: pages carry the code alone. A line is a comment if it begins with //, /** or *.
  if(text MATCHES "\n *(/\\*\\*[^\n]*\\*/ *[^ \n][^\n]*|\\*[^ /\n][^\n]*)")
    message(FATAL_ERROR "${module}.js: code on the line of a comment: ${CMAKE_MATCH_1}")
  endif()
  string(REGEX REPLACE "\n *(//|/\\*\\*|\\*)[^\n]*" "" text "${text}")
  if(text MATCHES "</[sS][cC][rR][iI][pP][tT]" OR text MATCHES "<!--")
    message(FATAL_ERROR "${module}.js holds text that ends a script element")
  endif()
  string(REGEX MATCHALL "\n(async function|function|const|let|class) [a-zA-Z0-9_]+" declared "${text}")
  foreach(declaration IN LISTS declared)
    string(REGEX REPLACE ".* " "" name "${declaration}")
    if(name IN_LIST names)
      message(FATAL_ERROR "${module}.js declares ${name}, which another module declares, too")
    endif()
    list(APPEND names "${name}")
  endforeach()
  list(APPEND seen "${module}")
  string(APPEND joined "\n// ---- ${module}.js${text}")
endforeach()
string(APPEND joined "})();\n")
file(WRITE "${OUTPUT}.js" "${joined}")

file(READ "${WEB}/page.css" style)
if(style MATCHES "</[sS][tT][yY][lL][eE]" OR style MATCHES "@import|url\\(")
  message(FATAL_ERROR "page.css ends its element or loads something")
endif()
file(WRITE "${OUTPUT}.css" "${style}")

set(source "// Made by cmake/embed_page.cmake from web/.\n#include \"explain/report/html_page.h\"\n\nnamespace {\n")
foreach(kind js css)
  file(READ "${OUTPUT}.${kind}" bytes HEX)
  file(SHA256 "${OUTPUT}.${kind}" hash_${kind})
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND source "constexpr char k_${kind}[] = {\n${bytes}};\n")
endforeach()
string(APPEND source "}  // namespace\n\nnamespace regard::inline v0 {\nPageAssets page_assets() {\n"
  "  return {{k_js, sizeof k_js}, \"${hash_js}\", {k_css, sizeof k_css}, \"${hash_css}\"};\n}\n"
  "}  // namespace regard::inline v0\n")
file(WRITE "${OUTPUT}" "${source}")
