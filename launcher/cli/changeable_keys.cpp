#include "launcher/cli/changeable_keys.h"

#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::cli {
namespace {

// What a change of a key gives up.
enum class Effect : std::uint8_t { none, later_steps, sums, wire, replicas };

struct Changeable {
  std::string_view key;  // or a section: all of its keys
  Effect effect;
};

// The first entry that fits counts.
constexpr std::array kChangeable = {
    Changeable{"train.eval_every", Effect::none},
    // Before "train", which would match as well.
    Changeable{"train.stop_when", Effect::none},
    Changeable{"train.micro_batch", Effect::sums},
    Changeable{"train", Effect::later_steps},
    Changeable{"pipeline.replicas", Effect::replicas},
    Changeable{"pipeline.slices", Effect::sums},
    Changeable{"pipeline.threads", Effect::sums},
    Changeable{"pipeline", Effect::none},
    Changeable{"model.path", Effect::none},  // a moved directory: check_same_model() compares
    Changeable{"model.recompute", Effect::none},
    Changeable{"codec", Effect::wire},
    Changeable{"sync.share_state", Effect::none},
    Changeable{"sync", Effect::replicas},
    Changeable{"checkpoint", Effect::none},
    Changeable{"hosts", Effect::none},
    Changeable{"on", Effect::none},
    Changeable{"plugins", Effect::none},
};

std::string_view given_up(Effect effect) {
  switch (effect) {
    case Effect::none:
      return "no bits, with raw float32 links, a number as pipeline.threads and machines of one "
             "type";
    case Effect::later_steps:
      return "the bits of all later steps: they are those of neither setting from the start";
    case Effect::sums:
      return "the last bits of all later steps: gradients are summed in another order; dropout, "
             "noise and codecs of few bits draw other values";
    case Effect::wire:
      return "the bits of all later steps: other values cross the boundaries";
    case Effect::replicas:
      break;
  }
  return "the bits of all later steps: replicas agree on other weights, and may start from the "
         "agreed model instead of their own state";
}

const Changeable* find_changeable(std::string_view key) {
  if (key == "train.optimizer") return nullptr;  // its checkpoints have another state
  const auto found = std::ranges::find_if(kChangeable, [key](const Changeable& one) {
    return key == one.key || (key.starts_with(one.key) && key[one.key.size()] == '.');
  });
  return found == kChangeable.end() ? nullptr : &*found;
}

// "train.steps, train.epochs, [codec]": what has one of these effects.
std::string keys_with(std::span<const Effect> effects) {
  std::vector<std::string> keys;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    const Changeable* const one = find_changeable(key.name);
    if (one == nullptr || std::ranges::find(effects, one->effect) == effects.end()) continue;
    const bool whole = one->key != "train" && recipe::is_recipe_section(one->key);
    std::string name = whole ? fmt::format("[{}]", one->key) : key.name;
    if (std::ranges::find(keys, name) == keys.end()) keys.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

constexpr std::array kEffects = {Effect::later_steps, Effect::sums, Effect::wire, Effect::replicas,
                                 Effect::none};

std::string shown(const recipe::RecipeValue& value) {
  return value.is_null() ? "unset" : value.dump();
}

}  // namespace

std::string changeable_keys() {
  std::string text = "--set may change, and gives up:";
  for (const Effect effect : kEffects) {
    text += fmt::format("\n  {}\n    {}", keys_with({&effect, 1}), given_up(effect));
  }
  return text;
}

std::vector<const recipe::RecipeKey*> changed_keys(const recipe::Recipe& before,
                                                   const recipe::Recipe& after) {
  std::vector<const recipe::RecipeKey*> changed;
  for (const recipe::RecipeKey& key : recipe::recipe_keys()) {
    if (key.get(before) != key.get(after)) changed.push_back(&key);
  }
  return changed;
}

void check_may_change(const std::vector<const recipe::RecipeKey*>& keys) {
  for (const recipe::RecipeKey* key : keys) {
    if (find_changeable(key->name) != nullptr) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          "--set {} would change what this run is; resume can change {} only; for "
                          "others start a run of another name",
                          key->name, keys_with(kEffects));
  }
}

std::vector<std::string> change_lines(const recipe::Recipe& before, const recipe::Recipe& now,
                                      const std::vector<const recipe::RecipeKey*>& keys) {
  const recipe::Recipe shown_before = recipe::without_secrets(before);
  const recipe::Recipe shown_now = recipe::without_secrets(now);
  std::vector<std::string> lines;
  for (const Effect effect : kEffects) {
    std::vector<std::string> changes;
    for (const recipe::RecipeKey* key : keys) {
      if (find_changeable(key->name)->effect != effect) continue;
      // The plan has chosen the same again.
      if (key->get(before) == key->get(now)) continue;
      const std::string was = shown(key->get(shown_before));
      const std::string is = shown(key->get(shown_now));
      changes.push_back(was == is ? fmt::format("{} (its variables)", key->name)
                                  : fmt::format("{} {} instead of {}", key->name, is, was));
    }
    if (changes.empty()) continue;
    lines.push_back(
        fmt::format("changed: {}; this gives up {}", fmt::join(changes, ", "), given_up(effect)));
  }
  return lines;
}

}  // namespace strait::cli
