#include "launcher/planner/planned_group.h"

#include <algorithm>

#include "framework/sync/methods.h"

namespace strait::planner {

bool on_one_host(const plan::Plan& plan, std::uint32_t stage) {
  const std::size_t first = plan.process({stage, 0}).host_index;
  return std::ranges::all_of(plan.processes, [&](const plan::Plan::Process& process) {
    return process.name.stage != stage || process.host_index == first;
  });
}

bool on_one_host(const plan::Plan& plan) {
  return std::ranges::all_of(plan.processes, [&](const plan::Plan::Process& process) {
    return on_one_host(plan, process.name.stage);
  });
}

bool tries_group(const plan::Plan& plan, std::uint32_t stage) {
  const recipe::Recipe::Sync& sync = plan.recipe.sync;
  const sync::MethodOffer* const method = sync::methods().find(plan.sync_method);
  if (method == nullptr || !method->in_group) return false;
  // The members of a group are fixed.
  if (sync.on_loss == recipe::LossRule::continue_run) return false;
  if (sync.group != recipe::GroupUse::automatic) return sync.group == recipe::GroupUse::always;
  return plan.recipe.model.device != recipe::Device::cpu && on_one_host(plan, stage);
}

std::string group_text(const plan::Plan& plan) {
  const bool any = std::ranges::any_of(plan.processes, [&](const plan::Plan::Process& process) {
    return tries_group(plan, process.name.stage);
  });
  if (!any) return "";
  if (plan.recipe.sync.group == recipe::GroupUse::automatic) {
    return "by NCCL between GPUs of one host";
  }
  return plan.recipe.model.device == recipe::Device::cpu ? "in shared memory"
                                                         : "by NCCL, or in shared memory of CPUs";
}

}  // namespace strait::planner
