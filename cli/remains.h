// SPDX-License-Identifier: Apache-2.0
//
// Temporary files that outlive a killed process, and their removal by a later process, on any machine that shares the
// folder.
//
//     create NAME ── lock it ── still there? ── write ── rename        the lock ends with the process, however it ends
//     a later process: for each NAME of the same output ── can it be locked? ── then nobody is writing it: remove
//
// On a file system without locks, such files stay. Read next: remains.cpp, program.h.
#pragma once

#include <filesystem>
#include <string>

namespace regard::program {

// A lock on a temporary file of this process, until destruction.
class TemporaryFileLock {
 public:
  explicit TemporaryFileLock(const std::string& path);
  ~TemporaryFileLock();
  TemporaryFileLock(const TemporaryFileLock&) = delete;
  TemporaryFileLock& operator=(const TemporaryFileLock&) = delete;

  // Another process mistook the file for a leftover before it was locked, and has removed it.
  bool lost() const { return lost_; }

 private:
  int descriptor_;
  bool lost_ = false;
};

// How the temporary files of an output begin; digits and dashes follow.
std::string temporary_prefix(const std::string& file_name);

// Removes the files with this prefix that no process is writing. Failures are ignored.
void remove_remains(const std::filesystem::path& folder, const std::string& prefix);

}  // namespace regard::program
