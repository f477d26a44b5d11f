#include "launcher/planner/inference_plan.h"

#include <map>
#include <utility>
#include <vector>

namespace strait::planner {

plan::Plan inference_plan(const plan::Plan& trained) {
  plan::Plan plan = trained;
  plan.recipe.train.micro_batch = trained.micro_batch_rows();
  plan.recipe.pipeline.replicas = 1;
  plan.recipe.sync = {};
  plan.sync_method.clear();
  plan.sync_strength.reset();
  plan.sync_offers.clear();
  plan.train = {};
  plan.eval.reset();
  std::erase_if(plan.processes,
                [](const plan::Plan::Process& process) { return process.name.replica != 0; });
  std::erase_if(plan.links, [](const plan::Plan::Link& link) {
    return link.use != plan::Plan::Use::boundary || link.listens.replica != 0;
  });
  // of hosts that stay: from the former number to the new one
  std::map<std::size_t, std::size_t> numbers;
  for (const plan::Plan::Process& process : plan.processes) numbers[process.host_index];
  // Empty if hosts have no names until they join.
  const std::vector<recipe::RecipeHost> named = std::exchange(plan.recipe.hosts.list, {});
  plan.hosts.clear();
  for (auto& [former, number] : numbers) {
    number = plan.hosts.size();
    plan.hosts.push_back(trained.hosts.at(former));
    if (former < named.size()) plan.recipe.hosts.list.push_back(named[former]);
  }
  for (plan::Plan::Process& process : plan.processes) {
    process.host_index = numbers.at(process.host_index);
  }
  return plan;
}

}  // namespace strait::planner
