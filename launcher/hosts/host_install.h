#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/build_files.h"

namespace strait::hosts {

struct InstallTarget {
  std::string host;    // as ssh takes it
  std::string config;  // for ssh -F; empty: the user's own
};

struct Installed {
  std::uint64_t sent = 0;  // bytes that the host did not have
  std::uint64_t all = 0;   // bytes of the build
  bool has_gpu = false;    // the host, by its driver
  bool has_cuda = false;   // the build
};

// install.sh, which a host runs.
extern const std::string_view kInstallScript;

// Receives the number of bytes sent so far.
using InstallProgress = std::function<void(std::uint64_t sent, std::uint64_t to_send)>;

// Installs the build that fits the host (build_for_host()) over ssh, into ~/.strait/builds/ID, and
// links ~/.strait/bin to it once the hashes of the files are right and the program prints its id;
// until then the host keeps its former build. Files that an earlier build has are not sent again.
// Keeps two builds. Blocks. UserError: with the host, the cause and the fix.
Installed install_on_host(const InstallTarget& target, const std::vector<Build>& builds,
                          const InstallProgress& progress);

}  // namespace strait::hosts
