# SPDX-License-Identifier: Apache-2.0
#
# Joins the modules of web/ into two scripts, one of every page and one of live pages, and writes them, with their styles
# and the SHA-256 of all, as a C++ file.
#
#     cmake -DWEB=web -DMODULES=numbers,kernel,… -DLIVE_MODULES=live/core,…,run,numbers,… -DOUTPUT=page_assets.cpp -P embed_page.cmake
#
# A module is a plain ES module. Two forms of import and export are supported; all others are rejected:
#     import { a, b } from "./earlier.js";              on one line, of an earlier module of the list; the line is removed
#     export function … | const … | let … | class …     the word `export ` is removed
# A module in a subfolder imports "./…" from there and "../…" from web/.
# Comment lines, types within lines, comments after a statement, empty lines and indentation are removed, so no template
# literal spans lines. All modules share one scope, so two modules must not declare the same top-level name.
# Read next: web/page.js, docs/reference/page.md.

cmake_minimum_required(VERSION 3.25)

# Joins modules (a list with commas) into `output`. Those after `run` are a function of this name; `start` calls it.
function(join_modules listed output start)
  string(REPLACE "," ";" modules "${listed}")
  set(joined "\"use strict\";\n{\n")
  set(seen "")
  set(names "")
  foreach(module IN LISTS modules)
    if("${module}" STREQUAL "run")
      string(APPEND joined "const run = () => {\n")
      continue()
    endif()
    file(READ "${WEB}/${module}.js" text)
    set(text "\n${text}")
    string(REGEX MATCH "^.*/" folder "${module}")
    string(REGEX MATCHALL "\nimport { [a-zA-Z0-9_, ]+ } from \"\\.\\.?/[a-z_]+\\.js\"" imports "${text}")
    foreach(import IN LISTS imports)
      string(REGEX REPLACE ".*\"(\\.\\.?/[a-z_]+)\\.js\"" "\\1" imported "${import}")
      string(REGEX REPLACE "^\\./" "${folder}" imported "${imported}")
      string(REGEX REPLACE "^\\.\\./" "" imported "${imported}")
      if(NOT imported IN_LIST seen)
        message(FATAL_ERROR "${module}.js imports ${imported}.js, which is not before it in the list of modules")
      endif()
    endforeach()
    string(REGEX REPLACE "\nimport { [a-zA-Z0-9_, ]+ } from \"\\.\\.?/[a-z_]+\\.js\"[^\n]*" "" text "${text}")
    string(REGEX REPLACE "\nexport (async function|function\\*?|const|let|class) " "\n\\1 " text "${text}")
    if(text MATCHES "\n((import|export)[^a-zA-Z0-9_][^\n]*)")
      message(FATAL_ERROR "${module}.js: embed_page.cmake does not support this form of import or export: ${CMAKE_MATCH_1}")
    endif()
    # Comments are not copied into pages. A line is a comment if it begins with //, /** or *.
    if(text MATCHES "\n *(/\\*\\*[^\n]*\\*/ *[^ \n][^\n]*|\\*[^ /\n][^\n]*)")
      message(FATAL_ERROR "${module}.js: code and a comment on one line: ${CMAKE_MATCH_1}")
    endif()
    string(REGEX REPLACE "\n *(//|/\\*\\*|\\*)[^\n]*" "" text "${text}")
    string(REGEX REPLACE "/\\*\\*[^*\n]*\\*/ ?" "" text "${text}")
    string(REGEX REPLACE ";  //[^\n]*" ";" text "${text}")
    if(text MATCHES "</[sS][cC][rR][iI][pP][tT]" OR text MATCHES "<!--")
      message(FATAL_ERROR "${module}.js contains text that ends a script element")
    endif()
    string(REGEX MATCHALL "\n(async function|function\\*?|const|let|class) [a-zA-Z0-9_]+" declared "${text}")
    foreach(declaration IN LISTS declared)
      string(REGEX REPLACE ".* " "" name "${declaration}")
      if(name IN_LIST names)
        message(FATAL_ERROR "${module}.js declares ${name}, which another module also declares")
      endif()
      list(APPEND names "${name}")
    endforeach()
    string(REGEX REPLACE "\n +" "\n" text "${text}")
    string(REGEX REPLACE "\n\n+" "\n" text "${text}")
    list(APPEND seen "${module}")
    string(APPEND joined "${text}")
  endforeach()
  string(APPEND joined "};\n${start}\n}\n")
  file(WRITE "${output}" "${joined}")
endfunction()

file(GLOB found RELATIVE "${WEB}" "${WEB}/*.js" "${WEB}/live/*.js")
string(REPLACE "," ";" listed "${MODULES},${LIVE_MODULES}")
foreach(file IN LISTS found)
  string(REGEX REPLACE "\\.js$" "" module "${file}")
  if(NOT module IN_LIST listed)
    message(FATAL_ERROR "${WEB}/${file} is not in the lists of modules (src/explain/CMakeLists.txt)")
  endif()
endforeach()
join_modules("run,${MODULES}" "${OUTPUT}.js" "run();")
# The text and the heading of a live page are in its markup, and are painted first. A page in the background has no frames.
join_modules("${LIVE_MODULES}" "${OUTPUT}.live_js"
  "let begun = false;\nconst begin = () => { if (!begun) { begun = true; run(); } };\nrequestAnimationFrame(() => setTimeout(begin));\nsetTimeout(begin, 150);")

file(READ "${WEB}/page.css" style)
file(READ "${WEB}/live/live.css" live_style)
foreach(text IN ITEMS "${style}" "${live_style}")
  if(text MATCHES "</[sS][tT][yY][lL][eE]" OR text MATCHES "@import|url\\(")
    message(FATAL_ERROR "a style contains text that ends its element, or loads a resource")
  endif()
endforeach()
# Comments, and spaces and semicolons that mean nothing.
foreach(name IN ITEMS style live_style)
  string(REGEX REPLACE "/\\*([^*]|\\*[^/])*\\*/" "" ${name} "${${name}}")
  string(REGEX REPLACE "\n *" "\n" ${name} "${${name}}")
  string(REGEX REPLACE "; +" ";" ${name} "${${name}}")
  string(REGEX REPLACE " *([{}]) *\n*" "\\1" ${name} "${${name}}")
  string(REGEX REPLACE ";+}" "}" ${name} "${${name}}")
  string(REPLACE ": " ":" ${name} "${${name}}")
  string(REPLACE ", " "," ${name} "${${name}}")
endforeach()
file(WRITE "${OUTPUT}.css" "${style}")
file(WRITE "${OUTPUT}.live_css" "${style}${live_style}")

set(source "// Generated by cmake/embed_page.cmake from web/.\n#include \"explain/report/html_page.h\"\n\nnamespace {\n")
foreach(kind js css live_js live_css)
  file(READ "${OUTPUT}.${kind}" bytes HEX)
  file(SHA256 "${OUTPUT}.${kind}" hash_${kind})
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND source "constexpr char k_${kind}[] = {\n${bytes}};\n")
endforeach()
string(APPEND source "}  // namespace\n\nnamespace regard::inline v0 {\nPageAssets page_assets() {\n"
  "  return {{k_js, sizeof k_js}, \"${hash_js}\", {k_css, sizeof k_css}, \"${hash_css}\",\n"
  "          {k_live_js, sizeof k_live_js}, \"${hash_live_js}\", {k_live_css, sizeof k_live_css}, \"${hash_live_css}\"};\n}\n"
  "}  // namespace regard::inline v0\n")
file(WRITE "${OUTPUT}" "${source}")
