#include <fmt/ranges.h>

#include "framework/sync/methods.h"
#include "framework/sync/sync_error.h"
#include "launcher/base/errors.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::planner {
namespace {

// "sync.every is 3 (recipes/x.toml:31:9)".
template <class Value>
std::string setting(const plan::Plan& plan, std::string_view key, const Value& value) {
  return fmt::format("{} is {} ({})", key, value, plan.recipe.origins.of(key));
}

std::string method_setting(const plan::Plan& plan) {
  return setting(plan, "sync.method", fmt::format("\"{}\"", plan.sync_method));
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw base::UserError(base::ExitCode::bad_input, sentence);
}

sync::RecipeFacts context_of(const plan::Plan& plan) {
  return {[&plan](std::string_view key) { return plan.recipe.origins.of(key); }};
}

// All settings of the method, for messages of plugins, which do not name keys.
std::string all_settings(const plan::Plan& plan) {
  std::vector<std::string> settings = {method_setting(plan)};
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (recipe::section_of(key.name) != "sync" || key.name == "sync.method" ||
        key.name == "sync.on_loss" || key.name == "sync.group" || key.name == "sync.share_state")
      continue;
    const recipe::RecipeValue value = key.get(plan.recipe);
    if (value.is_null() || !plan.recipe.origins.by_key.contains(key.name)) continue;
    settings.push_back(setting(plan, key.name, value.dump()));
  }
  return fmt::format("{}", fmt::join(settings, ", "));
}

}  // namespace

void check_sync_settings(const plan::Plan& plan) {
  const sync::SyncSettings settings = sync_settings(plan.recipe, plan.sync_method, plan.steps);
  const sync::MethodOffer* const method = sync::methods().find(plan.sync_method);
  if (method != nullptr && method->check != nullptr) {
    const std::string objection = method->check(settings, context_of(plan));
    if (!objection.empty()) refuse(objection);
  }
  try {
    sync::make_method(settings);
  } catch (const sync::SyncError& error) {
    refuse(fmt::format("{}: these settings contradict each other: {}", all_settings(plan),
                       error.what()));
  }
}

bool has_all_moments(const recipe::Recipe& recipe) {
  return recipe.train.moments == recipe::Moments::float32 &&
         recipe.train.optimizer == recipe::OptimizerKind::adamw && !recipe.sync.share_state;
}

bool changes_moments(const plan::Plan& plan, const std::string& method) {
  const auto traits = sync::make_method(sync_settings(plan.recipe, method, plan.steps))->traits;
  return std::ranges::count(traits.trainer_slots, sync::kFirstMoment) > 0;
}

void check_moments(const plan::Plan& plan) {
  const recipe::Recipe::Train& train = plan.recipe.train;
  if (has_all_moments(plan.recipe) || !changes_moments(plan, plan.sync_method)) return;
  std::string key = "sync.share_state";
  std::string value = "true";
  if (train.optimizer == recipe::OptimizerKind::muon) {
    key = "train.optimizer";
    value = fmt::format("\"{}\"", recipe::name_of(train.optimizer));
  } else if (train.moments != recipe::Moments::float32) {
    key = "train.moments";
    value = fmt::format("\"{}\"", recipe::name_of(train.moments));
  }
  refuse(
      fmt::format("{}, but {}, which exchanges all moments in float32; leave {} out, or "
                  "choose another method",
                  setting(plan, key, value), method_setting(plan), key));
}

bool allows_unequal_rows(const std::string& method) {
  const sync::MethodOffer* const offer = sync::methods().find(method);
  if (offer == nullptr) return false;
  sync::SyncSettings settings;
  settings.method = method;  // no setting changes what it sums
  return offer->weighs_rows || offer->make(settings)->traits.sums_gradients;
}

void check_unequal_rows(const plan::Plan& plan) {
  if (plan.replica_rows.empty() || allows_unequal_rows(plan.sync_method)) return;
  refuse(fmt::format(
      "{}, but {}, which counts all replicas the same; leave pipeline.rows out, or "
      "choose another method",
      setting(plan, "pipeline.rows", fmt::format("[{}]", fmt::join(plan.replica_rows, ", "))),
      method_setting(plan)));
}

void check_loss_rule(const plan::Plan& plan) {
  const sync::MethodOffer* const method = sync::methods().find(plan.sync_method);
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop || method->needs_all.empty()) return;
  refuse(fmt::format(
      "{}, but {}, which cannot continue without a replica: it {}; choose another "
      "method, or set sync.on_loss to \"stop\"",
      setting(plan, "sync.on_loss", "\"continue\""), method_setting(plan), method->needs_all));
}

void check_group(const plan::Plan& plan) {
  if (plan.recipe.sync.group != recipe::GroupUse::always) return;
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop) return;
  refuse(fmt::format(
      "{}, but {}: a group cannot lose a replica; leave sync.group at \"auto\", or "
      "set sync.on_loss to \"stop\"",
      setting(plan, "sync.group", "\"always\""), setting(plan, "sync.on_loss", "\"continue\"")));
}

}  // namespace strait::planner
