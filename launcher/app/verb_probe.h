#pragma once

#include <string>
#include <vector>

#include "launcher/base/exit_code.h"

namespace strait::app {

struct ProbeWords {
  std::string recipe;
  std::vector<std::string> overrides;  // as --set has them
  std::string out = "links.toml";
  double seconds = 4;  // of each measurement of bandwidth
};

// Brings up the hosts of the recipe, measures them and the paths between them, and writes what was
// found where hosts.links can name it. Nothing is trained.
base::ExitCode probe(const ProbeWords& words);

}  // namespace strait::app
