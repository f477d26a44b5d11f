#pragma once

#include <sys/stat.h>

#include <cstdlib>

#include "tests/scratch_directory.h"

namespace strait::hosts {

// A folder in front of PATH with an `ssh` that is this script, for as long as this lives. The
// script runs in the folder; its last argument is the command for the host.
class SshInPath {
 public:
  explicit SshInPath(const std::string& script) {
    add_program("ssh", "cd " + folder_.path().string() + "\n" + script);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  SshInPath(const SshInPath&) = delete;
  SshInPath& operator=(const SshInPath&) = delete;
  ~SshInPath() { ::setenv("PATH", path_.c_str(), 1); }

  void add_program(const std::string& name, const std::string& script) const {
    ScratchDirectory::write(folder_ / name, "#!/bin/sh\n" + script);
    ::chmod((folder_ / name).c_str(), 0700);
  }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  const ScratchDirectory folder_;
  const std::string path_ = std::getenv("PATH");
};

}  // namespace strait::hosts
