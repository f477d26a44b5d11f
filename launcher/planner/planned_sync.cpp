#include "launcher/planner/planned_sync.h"

#include <fmt/format.h>

#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_group.h"
#include "launcher/planner/planned_model.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "stages/muon.h"
#include "stages/stage_layout.h"
#include "stages/step_consensus.h"

namespace strait::planner {
namespace {

bool selects(const recipe::Recipe& recipe, const std::string& method) {
  return recipe::sync_method_of(recipe) == method;
}

// The methods among which "auto" chooses.
std::vector<plan::Plan::SyncOffer> candidates_of(const plan::Plan& plan) {
  std::vector<plan::Plan::SyncOffer> offers = plan.sync_offers;
  if (!has_all_moments(plan.recipe)) {
    std::erase_if(offers,
                  [&plan](const auto& offer) { return changes_moments(plan, offer.method); });
  }
  if (!plan.replica_rows.empty()) {
    std::erase_if(offers, [](const auto& offer) { return !allows_unequal_rows(offer.method); });
  }
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop) return offers;
  std::erase_if(offers, [](const plan::Plan::SyncOffer& offer) {
    return !sync::methods().find(offer.method)->needs_all.empty();
  });
  return offers;
}

bool same_choice(const plan::Plan& before, const plan::Plan& plan) {
  return before.recipe.sync == plan.recipe.sync &&
         before.recipe.pipeline.replicas == plan.recipe.pipeline.replicas;
}

void choose(plan::Plan& plan, const plan::Plan* before) {
  if (before != nullptr && same_choice(*before, plan)) {
    plan.sync_method = before->sync_method;
    plan.sync_strength = before->sync_strength;
    return;
  }
  const plan::Plan::SyncOffer chosen = choose_sync(candidates_of(plan), consensus_slowdown(plan));
  plan.sync_method = chosen.method;
  plan.sync_strength = chosen.strength;
}

// Bytes that a first stage sends for consensus: the report of its pipeline, with a norm per tensor.
std::int64_t consensus_bytes(const models::ModelDescription& model) {
  stages::StepReport report;
  report.squared_norms.resize(model.trained_tensors().size());
  return static_cast<std::int64_t>(stages::proposal_bytes(report));
}

void plan_link(plan::Plan& plan, plan::Plan::Use use, const plan::Plan::Process& one,
               const plan::Plan::Process& other, std::int64_t bytes) {
  plan::Plan::Link link;
  link.name = fmt::format("{} {}~{}", use == plan::Plan::Use::consensus ? "consensus" : "replica",
                          one.name.text(), other.name.text());
  link.use = use;
  link.connects = one.name;
  link.listens = other.name;
  link.forward_bytes = bytes;
  link.backward_bytes = bytes;
  link.first_forward_bytes = bytes;
  plan.links.push_back(link);
}

// Bytes per step of a stage: from a replica to each other member of its group, and from a group's
// leader to each other leader.
struct LinkBytes {
  std::int64_t in_group = 0;
  std::int64_t of_leaders = 0;
};

std::int64_t to_each(const sync::SyncSettings& settings, const sync::Layout& layout,
                     std::size_t members) {
  if (members < 2) return 0;
  const double bytes = sync::forecast(settings, layout, members).step_bytes;
  return std::llround(bytes / static_cast<double>(members - 1));
}

// Links the replicas of each stage that exchange sums: all members of a group with each other, and
// the leaders of all groups with each other. First stages get one more link for consensus.
void plan_links(plan::Plan& plan, const sync::SyncSettings& settings,
                const models::ModelDescription& model) {
  const std::int64_t proposal = consensus_bytes(model);
  for (const plan::Plan::Process& one : plan.processes) {
    const sync::Layout layout = stages::stage_layout(model, one.chunks);
    const sync::ReplicaGroups groups = plan::groups_of(plan, one.name.stage);
    const std::vector<std::uint32_t> own = sync::group_of(groups, one.name.replica).members;
    const LinkBytes bytes{to_each(sync::settings_in_group(settings), layout, own.size()),
                          to_each(settings, layout, groups.size())};
    for (const plan::Plan::Process& other : plan.processes) {
      if (one.name.stage != other.name.stage || one.name.replica >= other.name.replica) continue;
      const bool in_group = std::ranges::count(own, other.name.replica) > 0;
      const auto others = sync::leaders_of(groups, other.name.replica).members;
      const bool leaders =
          one.name.replica == own.front() && std::ranges::count(others, other.name.replica) > 0;
      if (in_group || leaders) {
        plan_link(plan, plan::Plan::Use::replica, one, other,
                  in_group ? bytes.in_group : bytes.of_leaders);
      }
      if (one.name.stage == 0) plan_link(plan, plan::Plan::Use::consensus, one, other, proposal);
    }
  }
}

// Bytes of the moments that only other members of its group have.
std::int64_t moments_elsewhere(const plan::Plan& plan, const models::ModelDescription& model,
                               const plan::Plan::Process& process) {
  if (!plan.recipe.sync.share_state) return 0;
  const sync::Membership own =
      sync::group_of(plan::groups_of(plan, process.name.stage), process.name.replica);
  std::set<std::string> without_second;
  if (plan.recipe.train.optimizer == recipe::OptimizerKind::muon) {
    for (const models::LayerRange& layers : process.chunks) {
      for (const auto& matrix : stages::muon_matrices(model, layers)) {
        without_second.insert(matrix.name);
      }
    }
  }
  const sync::Layout layout = stages::stage_layout(model, process.chunks);
  const std::vector<std::size_t> owners = sync::owners_of(layout, own.count());
  const std::int64_t both = state_bytes(plan.recipe, /*on_gpu=*/false).moments;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == own.mine) continue;
    const sync::Piece& piece = layout.pieces()[i];
    bytes += piece.range.count() * both / (without_second.contains(piece.spec.name) ? 2 : 1);
  }
  return bytes;
}

}  // namespace

sync::SyncSettings sync_settings(const recipe::Recipe& recipe, const std::string& method,
                                 std::int64_t steps) {
  const recipe::Recipe::Sync configured =
      selects(recipe, method) ? recipe.sync : recipe::Recipe::Sync();
  sync::SyncSettings settings;
  settings.method = method;
  settings.seed = static_cast<std::uint64_t>(recipe.seed);
  settings.narrow_wire = configured.wire_dtype == recipe::Dtype::bfloat16;
  settings.random = configured.random.value_or(settings.random);
  settings.top = configured.top.value_or(settings.top);
  settings.bits = static_cast<int>(configured.bits.value_or(settings.bits));
  settings.every = configured.every.value_or(0);
  settings.fragments = configured.fragments;
  settings.late = configured.late;
  settings.outer_learning_rate = configured.outer_learning_rate;
  settings.outer_momentum = configured.outer_momentum;
  settings.rank = configured.rank;
  settings.share_state = recipe.sync.share_state;
  settings.steps = steps;
  settings.beta1 = recipe.train.betas.first;
  settings.beta2 = recipe.train.betas.second;
  return settings;
}

std::optional<sync::Strength> strength_of(const sync::SyncSettings& settings) {
  if (sync::methods().named(settings.method).strengths == nullptr) return std::nullopt;
  return sync::Strength{settings.random, settings.top, settings.bits};
}

std::uint64_t bfloat16_sync_bytes(const plan::Plan& plan, net::ProcessName process) {
  if (plan.recipe.pipeline.replicas == 1) return 0;
  // Sums in a group take no link, and only its leader exchanges with other groups.
  const sync::ReplicaGroups groups = plan::groups_of(plan, process.stage);
  if (sync::group_of(groups, process.replica).mine != 0) return 0;
  const auto peers = static_cast<std::uint64_t>(groups.size());
  // No method sends frozen parameters.
  const models::ModelDescription model =
      models::describe(planned_model(plan), {plan.recipe.data.row, 4});
  const auto values =
      static_cast<std::uint64_t>(stages::stage_layout(model, plan.process(process).chunks).size());
  // It sends all values except its own shard for reduction, and its reduced shard to all others.
  constexpr std::uint64_t kBytesBothWays = 4;
  return kBytesBothWays * values * (peers - 1) / peers;
}

void plan_sync(plan::Plan& plan, const models::ModelDescription& model, const plan::Plan* before) {
  plan.sync_method = recipe::sync_method_of(plan.recipe);
  if (plan.sync_method.empty()) return;
  if (before != nullptr && before->sync_method.empty()) before = nullptr;
  const bool automatic = plan.sync_method == recipe::kAutomaticSync;
  // Done first, so that a wrong recipe is reported as such and not as a failed forecast.
  if (!automatic) check_sync_settings(plan);
  plan.sync_offers = sync_offers(plan, model);
  if (automatic) choose(plan, before);
  check_loss_rule(plan);
  check_moments(plan);
  check_unequal_rows(plan);
  check_group(plan);
  plan_groups(plan, before);
  check_shared_state(plan);
  check_replica_devices(plan);
  const sync::SyncSettings settings =
      sync_settings(plan::resolved_recipe(plan), plan.sync_method, plan.steps);
  plan.sync_strength = strength_of(settings);
  // A replica that continues without a lost one repeats the step from a copy of its gradient.
  const bool copies_gradient = plan.recipe.sync.on_loss == recipe::LossRule::continue_run &&
                               sync::make_method(settings)->traits.sums_gradients;
  for (plan::Plan::Process& process : plan.processes) {
    const sync::Layout layout = stages::stage_layout(model, process.chunks);
    const sync::Forecast costs = sync::forecast(
        settings, layout, plan::groups_of(plan, process.name.stage), process.name.replica);
    process.state_bytes += std::llround(costs.slot_bytes);
    process.sync_bytes = std::llround(costs.frame_bytes);
    const std::int64_t elsewhere = moments_elsewhere(plan, model, process);
    (process.disk_bytes > 0 ? process.disk_bytes : process.state_bytes) -= elsewhere;
    process.saved_bytes -= elsewhere;
    if (copies_gradient) process.sync_bytes += layout.size() * 4;
    // Values that the other members of the group read in shared memory. GPUs exchange theirs by
    // NCCL.
    if (process.group && !plan.gpu_of(process)) process.sync_bytes += layout.size() * 4;
    if (plan.recipe.checkpoint.memory_every > 0) {
      process.saved_bytes += std::llround(costs.slot_bytes);
    }
  }
  plan_links(plan, settings, model);
}

}  // namespace strait::planner
