#include "launcher/plan/thread_limit.h"

#include <fmt/format.h>

#include "launcher/base/errors.h"

namespace strait::plan {
namespace {

// Empty: the host has enough cores.
std::string thread_objection(const Plan& plan, std::size_t host) {
  const std::int64_t cores = plan.hosts.at(host).cores;
  const std::int64_t threads = plan.recipe.pipeline.threads.value_or(0);
  if (cores == 0 || threads <= cores) return "";
  return fmt::format("pipeline.threads is {} ({}), but host {} has {} {}", threads,
                     plan.recipe.origins.of("pipeline.threads"), plan.hosts.at(host).name, cores,
                     cores == 1 ? "core" : "cores");
}

}  // namespace

void check_threads(const Plan& plan, std::size_t host) {
  const std::string objection = thread_objection(plan, host);
  if (objection.empty()) return;
  const std::int64_t cores = plan.hosts.at(host).cores;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{}; set it to {}{}, or to \"auto\", which divides the cores of each host among "
                  "its processes",
                  objection, cores, cores == 1 ? "" : " or fewer"));
}

std::string thread_warning(const Plan& plan, std::size_t host) {
  const std::string objection = thread_objection(plan, host);
  if (objection.empty()) return "";
  return fmt::format(
      "{}; the run keeps its threads for equal bits, and computes slower there than with {}: to "
      "change that, resume with --set pipeline.threads={}",
      objection, plan.hosts.at(host).cores, plan.hosts.at(host).cores);
}

}  // namespace strait::plan
