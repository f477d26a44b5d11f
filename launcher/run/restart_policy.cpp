#include "launcher/run/restart_policy.h"

#include <fmt/ranges.h>

namespace strait::run {
namespace {

// A loss that is met again three times without a new checkpoint in between does not pass.
constexpr std::int64_t kDefaultLimit = 3;
constexpr std::chrono::milliseconds kFirstDelay{1'000};  // of the second restart in a row
constexpr std::chrono::milliseconds kLongestDelay{10'000};

// Failures that another start may not meet again.
bool may_pass(base::ExitCode code) {
  switch (code) {
    case base::ExitCode::peer_lost:
    case base::ExitCode::stalled:
    case base::ExitCode::internal:    // a process that crashed
    case base::ExitCode::storage_io:  // a file server that was away for a moment
      return true;
    case base::ExitCode::done:
    case base::ExitCode::bad_input:
    case base::ExitCode::mismatch:
    case base::ExitCode::authentication:
    case base::ExitCode::fenced:
    case base::ExitCode::storage_full:
    case base::ExitCode::corrupt:
    case base::ExitCode::numeric:
    case base::ExitCode::out_of_memory:
    case base::ExitCode::interrupted:
      break;
  }
  return false;
}

// The first restart begins at once: most losses do not repeat.
std::chrono::milliseconds delay_before(std::int64_t number) {
  if (number <= 1) return std::chrono::milliseconds(0);
  auto delay = kFirstDelay;
  for (std::int64_t i = 2; i < number && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

void add_spare(recipe::Recipe::Hosts& hosts, recipe::RecipeHost lost) {
  lost.slots.reset();  // the spare host gets the slots of the host that it replaces
  hosts.spare.push_back(std::move(lost));
}

}  // namespace

std::int64_t restart_limit(const recipe::Recipe::Hosts& hosts) {
  return hosts.restart.value_or(hosts.backend == recipe::BackendKind::local ? 0 : kDefaultLimit);
}

RestartPolicy::Decision RestartPolicy::after(const Outcome& outcome,
                                             std::optional<store::Step> newest) {
  // An older checkpoint counts, too: the run may have been resumed from an earlier one.
  const bool saved = outcome.checkpoint.has_value();
  if (!first_ || newest > newest_ || saved) {
    first_ = outcome;
    newest_ = newest;
    in_row_ = 0;
  }
  Decision decision;
  if (outcome.stopped || !may_pass(outcome.code) || limit_ == 0) return decision;
  decision.exhausted = in_row_ >= limit_;
  decision.restart = !decision.exhausted;
  if (!decision.restart) return decision;
  decision.number = ++in_row_;
  decision.delay = delay_before(in_row_);
  return decision;
}

std::vector<std::size_t> replacement_order(const plan::Plan& plan,
                                           const std::set<std::uint32_t>& without,
                                           std::set<std::size_t> lost) {
  std::map<std::uint32_t, std::set<std::size_t>> missing;  // hosts, by replica
  for (const plan::Plan::Process& process : plan.processes) {
    if (!lost.contains(process.host_index) || without.contains(process.name.replica)) continue;
    missing[process.name.replica].insert(process.host_index);
  }
  std::vector<std::size_t> order;
  while (!missing.empty()) {
    const auto next =
        // The replica that lacks the fewest hosts first, so that few spare hosts bring back as many
        // replicas as possible.
        std::ranges::min_element(missing, {}, [](const auto& one) { return one.second.size(); });
    for (const std::size_t host : std::set<std::size_t>(next->second)) {
      order.push_back(host);
      lost.erase(host);
      // The spare host also replaces this host for the other replicas that used it.
      for (auto& [replica, hosts] : missing) hosts.erase(host);
    }
    std::erase_if(missing, [](const auto& one) { return one.second.empty(); });
  }
  // Hosts that no replica needs now come last.
  order.insert(order.end(), lost.begin(), lost.end());
  return order;
}

void replace_host(plan::Plan& plan, std::size_t host, std::size_t spare) {
  recipe::Recipe::Hosts& hosts = plan.recipe.hosts;
  recipe::RecipeHost& place = hosts.list.at(host);
  recipe::RecipeHost next = hosts.spare.at(spare);
  next.slots = place.slots;
  hosts.spare.erase(hosts.spare.begin() + static_cast<std::ptrdiff_t>(spare));
  add_spare(hosts, std::exchange(place, std::move(next)));
  // Without the facts of the host that is gone. The next launch asks the new one.
  plan.hosts.at(host) = plan::Plan::Host{place.name};
  for (plan::Plan::Process& process : plan.processes) {
    if (process.host_index == host) process.host = place.name;
  }
}

std::optional<recipe::Recipe> recipe_without(const plan::Plan& plan,
                                             const std::set<std::size_t>& lost) {
  recipe::Recipe recipe = plan.recipe;
  std::vector<recipe::RecipeHost> left;
  std::int64_t slots = 0;
  for (std::size_t i = 0; i < recipe.hosts.list.size(); ++i) {
    const recipe::RecipeHost& host = recipe.hosts.list[i];
    if (lost.contains(i)) {
      add_spare(recipe.hosts, host);
      continue;
    }
    slots += host.slots.value_or(
        std::ranges::count(plan.processes, i, &plan::Plan::Process::host_index));
    left.push_back(host);
  }
  recipe.hosts.list = std::move(left);
  const std::int64_t stages = std::min(recipe.pipeline.stages, slots / recipe.pipeline.replicas);
  if (stages == 0) return std::nullopt;
  const bool ranges = recipe.pipeline.partition.kind == recipe::PartitionKind::ranges;
  // The recipe's ranges fit only the former number of stages.
  if (ranges && stages != recipe.pipeline.stages) recipe.pipeline.partition = {};
  recipe.pipeline.stages = stages;
  return recipe;
}

void check_can_start_without(const plan::Plan& plan, const std::vector<std::uint32_t>& replicas) {
  if (replicas.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw base::UserError(base::ExitCode::bad_input, "the run cannot start without replica {}: {}",
                          fmt::join(replicas, ", "), why);
  };
  const std::int64_t all = plan.recipe.pipeline.replicas;
  if (std::ranges::max(replicas) >= all) {
    refuse(fmt::format("its replicas are 0 to {}", all - 1));
  }
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop) {
    refuse(
        "sync.on_loss is \"stop\", so all replicas have to be present from the start; add --set "
        "sync.on_loss=continue, or train fewer pipeline.replicas");
  }
  const std::set<std::uint32_t> distinct(replicas.begin(), replicas.end());
  if (std::ssize(distinct) == all) refuse("at least one replica has to train");
}

std::set<std::size_t> hosts_only_of(const plan::Plan& plan,
                                    const std::set<std::uint32_t>& replicas) {
  std::set<std::size_t> hosts;
  std::set<std::size_t> others;
  for (const plan::Plan::Process& process : plan.processes) {
    (replicas.contains(process.name.replica) ? hosts : others).insert(process.host_index);
  }
  std::erase_if(hosts, [&](std::size_t host) { return others.contains(host); });
  return hosts;
}

std::set<std::uint32_t> replicas_to_leave_out(const plan::Plan& plan,
                                              const std::set<std::uint32_t>& without,
                                              const std::set<std::size_t>& lost) {
  if (plan.recipe.sync.on_loss != recipe::LossRule::continue_run) return {};
  std::set<std::uint32_t> gone;
  for (const plan::Plan::Process& process : plan.processes) {
    if (lost.contains(process.host_index)) gone.insert(process.name.replica);
  }
  std::set<std::uint32_t> all = without;
  all.insert(gone.begin(), gone.end());
  // At least one replica has to train.
  if (std::ssize(all) >= plan.recipe.pipeline.replicas) return {};
  return gone;
}

std::string advice_to_start_without(const plan::Plan& plan, const std::set<std::uint32_t>& without,
                                    const std::set<std::size_t>& lost) {
  std::set<std::uint32_t> missing = replicas_to_leave_out(plan, without, lost);
  if (missing.empty()) return "";
  missing.insert(without.begin(), without.end());
  std::string options;
  for (const std::uint32_t replica : missing) options += fmt::format(" --without {}", replica);
  return fmt::format("; to start without {} and add {} later:{}",
                     missing.size() == 1 ? "that replica" : "those replicas",
                     missing.size() == 1 ? "it" : "them", options);
}

}  // namespace strait::run
