#include "launcher/run/coordination.h"

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "launcher/base/build_id.h"

namespace strait::run {

CoordinatorOptions base_coordination(const plan::RunFile& run, RunHosts& hosts) {
  CoordinatorOptions coordination;
  coordination.build = base::build_id();
  if (run.plan.recipe.hosts.backend != recipe::BackendKind::local) {
    coordination.limits.hold = std::chrono::seconds(run.plan.recipe.hosts.hold);
  }
  coordination.locate_endpoints = [&hosts](std::map<std::string, std::string> endpoints) {
    return hosts.connect_endpoints(std::move(endpoints));
  };
  return coordination;
}

}  // namespace strait::run
