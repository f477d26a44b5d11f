#pragma once

#include <functional>
#include <string>
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
};

// Hears how far it has come, in bytes of what has to be sent.
using InstallProgress = std::function<void(std::uint64_t sent, std::uint64_t to_send)>;

// Brings a build to one host over ssh, into ~/.strait/builds/ID, and points ~/.strait/bin there
// once the files' hashes are right and the program has told its id; until then the host keeps what
// it had. Files that an earlier build brought are not sent again. Two builds stay, older ones go.
// Blocks. UserError names the host, what is wrong, and the fix.
Installed install_on_host(const InstallTarget& target, const std::vector<BuildFile>& files,
                          const InstallProgress& progress);

}  // namespace strait::hosts
