#include "launcher/hosts/batch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace strait::hosts {
namespace {

std::int64_t most_on_a_node(const plan::Plan& plan) {
  std::vector<std::int64_t> taken(plan.hosts.size());
  for (const plan::Plan::Process& process : plan.processes) ++taken.at(process.host_index);
  return *std::ranges::max_element(taken);
}

std::vector<std::string> sbatch_options(const plan::Plan& plan) {
  const recipe::Recipe& recipe = plan.recipe;
  const recipe::SlurmSettings& slurm = recipe.hosts.slurm;
  std::vector<std::string> options = {"--job-name=" + recipe.name,
                                      fmt::format("--nodes={}", plan.hosts.size()),
                                      "--ntasks-per-node=1"};
  if (recipe.pipeline.threads) {
    options.push_back(
        fmt::format("--cpus-per-task={}", *recipe.pipeline.threads * most_on_a_node(plan)));
  }
  if (!slurm.partition.empty()) options.push_back("--partition=" + slurm.partition);
  if (!slurm.time.empty()) options.push_back("--time=" + slurm.time);
  if (!slurm.account.empty()) options.push_back("--account=" + slurm.account);
  if (slurm.gpus_per_node > 0) {
    options.push_back(fmt::format("--gpus-per-node={}", slurm.gpus_per_node));
  }
  options.push_back(fmt::format("--signal=B:USR1@{}", slurm.warning));
  options.insert(options.end(), {"--requeue", "--open-mode=append"});
  // Last: where one of these says something else, it is what the user wants.
  options.insert(options.end(), slurm.options.begin(), slurm.options.end());
  return options;
}

// As sbatch reads its lines: blanks and # are plain inside of quotes, a backslash takes the next
// character as it is, and nothing is expanded.
std::string quoted(const std::string& option) {
  std::string text = "\"";
  for (const char c : option) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

}  // namespace

std::string batch_script(const plan::Plan& plan, std::string_view last_words) {
  std::string script = "#!/bin/sh\n";
  for (const std::string& option : sbatch_options(plan)) {
    script += fmt::format("#SBATCH {}\n", quoted(option));
  }
  return script.append(last_words);
}

}  // namespace strait::hosts
