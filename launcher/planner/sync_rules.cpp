#include "launcher/planner/sync_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/sync/streaming_diloco.h"
#include "framework/sync/sync_error.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/base/user_error.h"

namespace strait::planner {
namespace {

// "sync.every is 3 (recipes/x.toml:31:9)".
template <class Value>
std::string setting(const plan::Plan& plan, std::string_view key, const Value& value) {
  return fmt::format("{} is {} ({})", key, value, plan.recipe.said_at.of(key));
}

std::string method_setting(const plan::Plan& plan) {
  return setting(plan, "sync.method", fmt::format("\"{}\"", plan.sync_method));
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw base::UserError(base::ExitCode::bad_input, sentence);
}

void check_turns(const plan::Plan& plan) {
  const recipe::Recipe::Sync& said = plan.recipe.sync;
  const std::int64_t bits = said.bits.value_or(sync::SyncSettings().bits);
  const std::int64_t every = said.every.value_or(sync::StreamingDiloco::kEvery);
  if (bits < 2) {
    refuse(fmt::format("{}, but {}, which sends values in 2 to 8 bits; set sync.bits to 2 or more",
                       setting(plan, "sync.bits", bits), method_setting(plan)));
  }
  const std::string fragments = setting(plan, "sync.fragments", said.fragments);
  if (every < said.fragments) {
    refuse(
        fmt::format("{}, but {}, and each fragment takes its turn at another update; set "
                    "sync.fragments to {} or less, or sync.every to {} or more",
                    fragments, setting(plan, "sync.every", every), every, said.fragments));
  }
  if (said.late <= every / said.fragments) return;
  refuse(fmt::format(
      "{}, but {} and {}, so that the next fragment's turn comes {} updates later, "
      "and one round at most is under way; set sync.late to {} or less, or "
      "sync.every to {} or more",
      setting(plan, "sync.late", said.late), setting(plan, "sync.every", every), fragments,
      every / said.fragments, every / said.fragments, said.late * said.fragments));
}

void check_warmup(const plan::Plan& plan) {
  const std::optional<std::int64_t> warmup = plan.recipe.sync.warmup;
  if (!warmup || *warmup < plan.steps) return;
  const bool epochs = plan.recipe.train.epochs.has_value();
  refuse(fmt::format(
      "{}, but the run has {} steps ({}, {}): {} would send exact means to its end "
      "and compress nothing; set sync.warmup to less than {}, or leave it out for a "
      "fifteenth of the run",
      setting(plan, "sync.warmup", *warmup), plan.steps, epochs ? "train.epochs" : "train.steps",
      plan.recipe.said_at.of(epochs ? "train.epochs" : "train.steps"), plan.sync_method,
      plan.steps));
}

// What the recipe says to the method, for sentences that know none of its keys.
std::string said_to_it(const plan::Plan& plan) {
  std::vector<std::string> words = {method_setting(plan)};
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (recipe::section_of(key.name) != "sync" || key.name == "sync.method" || key.name == "sync.on_loss")
      continue;
    const recipe::RecipeValue value = key.get(plan.recipe);
    if (value.is_null() || !plan.recipe.said_at.by_key.contains(key.name)) continue;
    words.push_back(setting(plan, key.name, value.dump()));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

void check_sync_settings(const plan::Plan& plan) {
  if (plan.sync_method == "streaming_diloco") check_turns(plan);
  if (plan.sync_method == "onebit_adam") check_warmup(plan);
  try {
    sync::make_method(sync_settings(plan.recipe, plan.sync_method, plan.steps));
  } catch (const sync::SyncError& error) {
    refuse(fmt::format("{}, but that does not go together: {}", said_to_it(plan), error.what()));
  }
}

void check_loss_rule(const plan::Plan& plan) {
  const sync::MethodOffer* const method = sync::methods().find(plan.sync_method);
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop || method->needs_all.empty()) return;
  refuse(fmt::format(
      "{}, but {}, which cannot go on without a replica: it {}; choose another "
      "method, or set sync.on_loss to \"stop\"",
      setting(plan, "sync.on_loss", "\"continue\""), method_setting(plan), method->needs_all));
}

}  // namespace strait::planner
