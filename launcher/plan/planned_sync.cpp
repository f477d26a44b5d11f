#include "launcher/plan/planned_sync.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/sync/sync_error.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

bool asks_for(const Recipe& recipe, const std::string& method) {
  return sync_method_of(recipe) == method;
}

std::unique_ptr<sync::SyncMethod> checked_method(const sync::SyncSettings& settings) {
  try {
    return sync::make_method(settings);
  } catch (const sync::SyncError& error) {
    throw UserError(ExitCode::bad_input, fmt::format("[sync]: {}", error.what()));
  }
}

std::int64_t slot_bytes(const sync::SyncMethod& method, const sync::Layout& layout) {
  std::int64_t bytes = 0;
  for (const sync::SlotNeed& need : method.slots()) {
    bytes += layout.size() * (need.width == sync::SlotNeed::Width::bfloat16 ? 2 : 4);
  }
  return bytes;
}

void plan_link(Plan& plan, Plan::Use use, const Plan::Process& one, const Plan::Process& other) {
  Plan::Link link;
  link.name = fmt::format("{} {}~{}", use == Plan::Use::vote ? "vote" : "replica", one.name.text(),
                          other.name.text());
  link.use = use;
  link.connects = one.name;
  link.listens = other.name;
  plan.links.push_back(link);
}

// One for each two replicas of a stage, and one more between heads, for what holds for a step.
void plan_links(Plan& plan) {
  for (const Plan::Process& one : plan.processes) {
    for (const Plan::Process& other : plan.processes) {
      if (one.name.stage != other.name.stage || one.name.replica >= other.name.replica) continue;
      plan_link(plan, Plan::Use::replica, one, other);
      if (one.name.stage == 0) plan_link(plan, Plan::Use::vote, one, other);
    }
  }
}

}  // namespace

sync::SyncSettings sync_settings(const Recipe& recipe, const std::string& method,
                                 std::int64_t steps) {
  const Recipe::Sync said = asks_for(recipe, method) ? recipe.sync : Recipe::Sync();
  sync::SyncSettings settings;
  settings.method = method;
  settings.seed = static_cast<std::uint64_t>(recipe.seed);
  settings.narrow_wire = said.wire_dtype == Dtype::bfloat16;
  settings.random = said.random;
  settings.top = said.top;
  settings.bits = static_cast<int>(said.bits);
  settings.narrow_reference = said.reference_dtype == Dtype::bfloat16;
  settings.every = said.every.value_or(0);
  settings.fragments = said.fragments;
  settings.late = said.late;
  settings.blend = said.blend;
  settings.outer_learning_rate = said.outer_learning_rate.value_or(settings.outer_learning_rate);
  settings.outer_momentum =
      said.outer_momentum.value_or(method == "noloco" ? 0.5 : settings.outer_momentum);
  settings.rank = said.rank;
  settings.warmup = said.warmup.value_or(0);
  settings.steps = steps;
  settings.beta1 = recipe.train.betas.first;
  return settings;
}

sync::Layout stage_layout(const models::ModelDescription& model, const models::LayerRange& layers) {
  const std::string& tied = model.layers.back().tied_to;
  const bool has_head = layers.last + 1 == static_cast<int>(model.layers.size());
  const bool shares = !tied.empty() && !(layers.first == 0 && has_head);
  std::vector<sync::PieceSpec> pieces;
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const bool own = i >= layers.first && i <= layers.last;
    for (const models::TensorShape& tensor : model.layers[static_cast<std::size_t>(i)].tensors) {
      const bool twin = shares && tensor.name == tied;
      if (own || (twin && has_head)) pieces.push_back({tensor.name, tensor.shape, twin});
    }
  }
  return sync::Layout(pieces);
}

void plan_sync(Plan& plan, const models::ModelDescription& model) {
  plan.sync_method = sync_method_of(plan.recipe);
  if (plan.sync_method.empty()) return;
  const auto method = checked_method(sync_settings(plan.recipe, plan.sync_method, plan.steps));
  for (Plan::Process& process : plan.processes) {
    process.state_bytes += slot_bytes(*method, stage_layout(model, process.layers));
  }
  plan_links(plan);
}

}  // namespace strait::launcher
