#include "launcher/planner/planned_group.h"

#include "framework/sync/methods.h"
#include "launcher/base/errors.h"

namespace strait::planner {
namespace {

using Together = std::function<bool(std::uint32_t one, std::uint32_t other)>;

std::uint32_t replicas_of(const plan::Plan& plan) {
  return static_cast<std::uint32_t>(plan.recipe.pipeline.replicas);
}

// `together` must be an equivalence relation.
sync::ReplicaGroups grouped_by(std::uint32_t replicas, const Together& together) {
  sync::ReplicaGroups groups;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    const auto found = std::ranges::find_if(
        groups, [&](const auto& group) { return together(group.front(), replica); });
    if (found == groups.end()) {
      groups.push_back({replica});
    } else {
      found->push_back(replica);
    }
  }
  return groups;
}

bool share_host(const plan::Plan& plan, std::uint32_t stage, std::uint32_t one,
                std::uint32_t other) {
  return plan.process({stage, one}).host_index == plan.process({stage, other}).host_index;
}

sync::ReplicaGroups by_host_of_stage(const plan::Plan& plan, std::uint32_t stage) {
  return grouped_by(replicas_of(plan), [&](std::uint32_t one, std::uint32_t other) {
    return share_host(plan, stage, one, other);
  });
}

// Groups of replicas that share a host in every stage: a method that averages weights counts whole
// replicas.
sync::ReplicaGroups by_hosts(const plan::Plan& plan) {
  return grouped_by(replicas_of(plan), [&](std::uint32_t one, std::uint32_t other) {
    for (std::uint32_t stage = 0; stage < plan.recipe.pipeline.stages; ++stage) {
      if (!share_host(plan, stage, one, other)) return false;
    }
    return true;
  });
}

bool any_sums(const sync::ReplicaGroups& groups) {
  return std::ranges::any_of(groups, [](const auto& group) { return group.size() > 1; });
}

// Whether a process computes on a GPU; nullopt: its host is not known yet.
std::optional<bool> on_gpu(const plan::Plan& plan, const plan::Plan::Process& process) {
  if (plan.recipe.model.device == recipe::Device::cpu) return false;
  const auto& known = plan.hosts.at(process.host_index).gpus;
  if (!known) return std::nullopt;
  return !known->empty();
}

std::string device_text(const plan::Plan& plan, const plan::Plan::Process& process) {
  if (on_gpu(plan, process) == true) return "a GPU";
  const std::optional<std::string>& processor = plan.hosts.at(process.host_index).processor;
  return processor ? "a CPU (" + *processor + ")" : "a CPU";
}

// Also true if it is not known.
bool round_alike(const plan::Plan& plan, const plan::Plan::Process& a,
                 const plan::Plan::Process& b) {
  const std::optional<bool> gpu = on_gpu(plan, a);
  if (!gpu || !on_gpu(plan, b)) return true;
  if (gpu != on_gpu(plan, b)) return false;
  const std::optional<std::string>& processor = plan.hosts.at(a.host_index).processor;
  const std::optional<std::string>& other = plan.hosts.at(b.host_index).processor;
  return *gpu || !processor || !other || processor == other;
}

// true: all replicas of the stage have GPUs; false: all compute on CPUs; nullopt: mixed or not
// known.
std::optional<bool> on_gpus(const plan::Plan& plan, std::uint32_t stage) {
  std::optional<bool> gpus;
  for (const plan::Plan::Process& process : plan.processes) {
    if (process.name.stage != stage) continue;
    const std::optional<bool> gpu = on_gpu(plan, process);
    if (!gpu || (gpus && gpus != gpu)) return std::nullopt;
    gpus = gpu;
  }
  return gpus;
}

// CPUs use exact sums over links unless the recipe asks for groups: these sums add in the order of
// replicas, with the bits of one replica that has all rows. NCCL always has its own order.
sync::ReplicaGroups groups_of_sums(const plan::Plan& plan, std::uint32_t stage) {
  const sync::ReplicaGroups by_host = by_host_of_stage(plan, stage);
  const std::optional<bool> gpus = on_gpus(plan, stage);
  if (plan.recipe.sync.group == recipe::GroupUse::always) {
    // NCCL also sums between hosts.
    return gpus == false ? by_host : grouped_by(replicas_of(plan), [](auto, auto) { return true; });
  }
  const bool cpu = gpus == false;
  const bool certain = by_host.size() == 1 || gpus == true;
  return cpu || !certain ? sync::separate_replicas(replicas_of(plan)) : by_host;
}

// The groups of a method, or the reason why there are none. The reason is empty if none are wanted.
struct Choice {
  sync::ReplicaGroups groups;
  std::string objection = {};
};

Choice choice_of_sums(const plan::Plan& plan, std::uint32_t stage) {
  Choice choice{groups_of_sums(plan, stage)};
  if (!any_sums(choice.groups)) {
    choice.objection = "the replicas compute on CPUs of several hosts, which share no memory";
  }
  return choice;
}

// The method in its default settings, to ask what it sums and which slots it keeps equal. No
// setting changes that.
std::unique_ptr<sync::SyncMethod> with_default_settings(const plan::Plan& plan,
                                                        const sync::MethodOffer& offer) {
  sync::SyncSettings settings;
  settings.method = offer.name;
  settings.steps = plan.steps;
  return offer.make(settings);
}

Choice choice_of_method(const plan::Plan& plan, const sync::MethodOffer& offer) {
  Choice choice{by_hosts(plan)};
  if (!any_sums(choice.groups)) {
    choice.objection = "no two replicas have all of their stages on the same hosts";
    return choice;
  }
  const auto method = with_default_settings(plan, offer);
  for (const auto& group : choice.groups) {
    const std::size_t first = choice.groups.front().size();
    if (group.size() == first || method->traits.sums_gradients) continue;
    choice.objection = fmt::format(
        "there are hosts with {} and with {} replicas, whose weights {} would average as if they "
        "were of as many rows",
        first, group.size(), offer.name);
  }
  return choice;
}

Choice choose_groups(const plan::Plan& plan, const std::string& name, std::uint32_t stage) {
  Choice separate{sync::separate_replicas(replicas_of(plan))};
  const sync::MethodOffer* const offer = sync::methods().find(name);
  // A group cannot lose members, so on_loss must be "stop".
  const bool fixed = plan.recipe.sync.on_loss == recipe::LossRule::stop;
  if (plan.recipe.sync.group == recipe::GroupUse::never || !fixed || offer == nullptr) {
    return separate;
  }
  if (offer->is_exact_sum) return choice_of_sums(plan, stage);
  Choice choice = choice_of_method(plan, *offer);
  // On one host a group would leave the method nothing to do. So groups are used there only if the
  // recipe asks for them, as in a trial on one machine of a method for slow links.
  const bool wanted =
      plan.recipe.sync.group == recipe::GroupUse::always || choice.groups.size() > 1;
  if (!choice.objection.empty()) choice.groups = separate.groups;
  return wanted ? choice : separate;
}

bool same_groups_possible(const plan::Plan& before, const plan::Plan& plan) {
  if (before.recipe.sync != plan.recipe.sync || before.sync_method != plan.sync_method)
    return false;
  if (before.processes.size() != plan.processes.size()) return false;
  return std::ranges::all_of(before.processes, [&](const plan::Plan::Process& process) {
    const auto [stage, replica] = process.name;
    return !process.group || share_host(plan, stage, *process.group, replica);
  });
}

}  // namespace

sync::ReplicaGroups groups_with(const plan::Plan& plan, const std::string& method,
                                std::uint32_t stage) {
  const sync::ReplicaGroups groups = choose_groups(plan, method, stage).groups;
  const bool sure = plan.recipe.sync.group == recipe::GroupUse::always ||
                    on_gpus(plan, stage) == true || groups.size() > 1;
  return sure ? groups : sync::separate_replicas(replicas_of(plan));
}

void plan_groups(plan::Plan& plan, const plan::Plan* before) {
  const bool always = plan.recipe.sync.group == recipe::GroupUse::always;
  const bool keep = before != nullptr && !always && same_groups_possible(*before, plan);
  for (plan::Plan::Process& process : plan.processes) {
    const auto [stage, replica] = process.name;
    if (keep) {
      process.group = before->process(process.name).group;
      continue;
    }
    const Choice choice = choose_groups(plan, plan.sync_method, stage);
    process.group.reset();
    if (any_sums(choice.groups)) {
      process.group = sync::group_of(choice.groups, replica).members.front();
    }
    if (!always || choice.objection.empty()) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          "sync.group is \"always\" ({}), but {}; leave sync.group at \"auto\"",
                          plan.recipe.origins.of("sync.group"), choice.objection);
  }
}

void check_shared_state(const plan::Plan& plan) {
  if (!plan.recipe.sync.share_state) return;
  const auto refuse = [&](const std::string& why) {
    throw base::UserError(base::ExitCode::bad_input, "sync.share_state is true ({}), but {}",
                          plan.recipe.origins.of("sync.share_state"), why);
  };
  bool shares = false;
  for (const plan::Plan::Process& process : plan.processes) {
    if (!process.group) continue;
    // Without GPUs and NCCL such a group sums over links.
    const bool gpu = on_gpu(plan, process) == true;
    shares = shares || gpu || !group_is_uncertain(plan, process.name.stage);
    const recipe::Offload offload = plan.recipe.train.offload;
    if (!gpu || offload == recipe::Offload::none) continue;
    refuse(fmt::format(
        "{} computes on a GPU (host {}), and train.offload is \"{}\": GPUs share only "
        "the state that they keep; leave one of the two out",
        process.name.describe(), plan.hosts.at(process.host_index).name, recipe::name_of(offload)));
  }
  if (!shares) {
    refuse(
        "no replicas of a host sum in shared memory or by NCCL; set sync.group to \"always\", or "
        "leave sync.share_state out");
  }
}

void check_replica_devices(const plan::Plan& plan) {
  const sync::MethodOffer* const offer = sync::methods().find(plan.sync_method);
  if (offer == nullptr) return;
  const auto method = with_default_settings(plan, *offer);
  if (!method->traits.model_is_replicated || method->traits.model_slot != sync::kWeights) return;
  for (const plan::Plan::Process& process : plan.processes) {
    for (const plan::Plan::Process& other : plan.processes) {
      if (&other == &process) break;
      if (other.name.stage != process.name.stage || round_alike(plan, other, process)) continue;
      const bool gpus = on_gpu(plan, other) == true || on_gpu(plan, process) == true;
      throw base::UserError(
          base::ExitCode::bad_input,
          "{} computes on {} (host {}) and {} on {} (host {}): {} keeps their weights equal bit by "
          "bit, but the two round differently; {}, or another sync.method, such as \"cocktail\"",
          other.name.describe(), device_text(plan, other), plan.hosts.at(other.host_index).name,
          process.name.describe(), device_text(plan, process),
          plan.hosts.at(process.host_index).name, offer->name,
          gpus ? "set model.device = \"cpu\"" : "use hosts of one kind");
    }
  }
}

bool group_is_uncertain(const plan::Plan& plan, std::uint32_t stage) {
  return plan.recipe.sync.group == recipe::GroupUse::automatic &&
         plan::groups_of(plan, stage).size() == 1;
}

bool group_shares_host(const plan::Plan& plan, net::ProcessName process) {
  const auto own = sync::group_of(plan::groups_of(plan, process.stage), process.replica);
  return std::ranges::all_of(own.members, [&](std::uint32_t member) {
    return share_host(plan, process.stage, process.replica, member);
  });
}

std::string group_text(const plan::Plan& plan) {
  for (std::uint32_t stage = 0; stage < plan.recipe.pipeline.stages; ++stage) {
    const sync::ReplicaGroups groups = plan::groups_of(plan, stage);
    if (!any_sums(groups)) continue;
    const bool cpu = on_gpus(plan, stage) == false;
    const char* const by = cpu                               ? "in shared memory"
                           : group_is_uncertain(plan, stage) ? "by NCCL between GPUs of one host"
                                                             : "by NCCL, or in shared memory";
    const char* const shared =
        plan.recipe.sync.share_state ? ", the optimizer's state is shared" : "";
    if (groups.size() == 1) {
      const sync::MethodOffer* const offer = sync::methods().find(plan.sync_method);
      const bool exact = offer != nullptr && offer->is_exact_sum;
      return fmt::format("{} {}{}", exact ? "" : ", replaced by exact sums", by, shared);
    }
    return fmt::format(" between groups of replicas ({}), which sum {}{}",
                       sync::groups_text(groups), by, shared);
  }
  return "";
}

}  // namespace strait::planner
