#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "launcher/host/host_call.h"
#include "launcher/plan/plan.h"

namespace strait::launcher {

// The way to every host of the plan, as its backend has it; in the order of plan.hosts. `run` is
// the run's directory.
std::vector<std::unique_ptr<HostCall>> call_hosts(const Plan& plan,
                                                  const std::filesystem::path& run);

}  // namespace strait::launcher
