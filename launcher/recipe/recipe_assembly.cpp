#include "launcher/recipe/recipe_assembly.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_sync_keys.h"

namespace strait::recipe {

namespace {

// The first mistake often causes the others and must stay on the screen.
constexpr std::size_t kMostMistakesShown = 20;

// Where each key was last set.
using Origins = std::map<std::string, std::string, std::less<>>;
using Mistakes = std::vector<std::string>;

// The names of keys and tables in `section`.
std::vector<std::string_view> known_in(std::string_view section) {
  std::vector<std::string_view> names;
  for (const auto& key : recipe_keys()) {
    std::string_view rest = key.name;
    if (!section.empty()) {
      if (!rest.starts_with(section) || rest.size() <= section.size() ||
          rest[section.size()] != '.') {
        continue;
      }
      rest.remove_prefix(section.size() + 1);
    }
    rest = rest.substr(0, rest.find('.'));
    if (std::ranges::find(names, rest) == names.end()) {
      names.push_back(rest);
    }
  }
  return names;
}

// A similar name in the same section, or the same name in another one.
std::string proposal_for(std::string_view key) {
  const auto last = last_part_of(key);
  const auto near = base::nearest_name(last, known_in(section_of(key)));
  if (!near.empty()) {
    return std::string(near);
  }
  const auto elsewhere = std::ranges::find_if(
      recipe_keys(), [&](const RecipeKey& known) { return last_part_of(known.name) == last; });
  return elsewhere == recipe_keys().end() ? "" : elsewhere->name;
}

std::string unknown_key(const FoundValue& found) {
  const auto section = section_of(found.key);
  const auto near = proposal_for(found.key);
  return fmt::format("unknown {} {} ({}){} known {}: {}", found.value.is_object() ? "table" : "key",
                     found.key, found.where,
                     near.empty() ? ";" : fmt::format("; did you mean {}?", near),
                     section.empty() ? "at the top" : fmt::format("in [{}]", section),
                     fmt::join(known_in(section), ", "));
}

std::string wrong_value(const FoundValue& found, const RecipeKey& key) {
  std::string proposal;
  if (const auto* written = found.value.get_ptr<const std::string*>()) {
    const std::vector<std::string> parts = key.names ? key.names() : std::vector<std::string>();
    std::vector<std::string_view> known = key.choices;
    known.insert(known.end(), parts.begin(), parts.end());
    const auto near = base::nearest_name(*written, known);
    proposal = near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near);
  }
  const std::string objection = key.objection ? key.objection(found.value) : std::string();
  if (!objection.empty()) proposal += "; " + objection;
  return fmt::format("{} is {} ({}), but must be {}{}", found.key, found.shown, found.where,
                     allowed_by(key), proposal);
}

// Whether the value is not the name of an existing part, where it has to be.
bool is_unknown_part(const FoundValue& found, const RecipeKey& key, PartNames names) {
  if (names == PartNames::any || !key.names) {
    return false;
  }
  const auto known = key.names();
  return std::ranges::none_of(known, [&](const std::string& name) { return found.value == name; });
}

void take(const FoundValue& found, PartNames names, Recipe& recipe, Origins& origins,
          Mistakes& mistakes) {
  origins[found.key] = found.where;
  if (const auto* key = find_recipe_key(found.key)) {
    if (!key->set(found.value, recipe) || is_unknown_part(found, *key, names)) {
      mistakes.push_back(wrong_value(found, *key));
    }
  } else if (!is_recipe_section(found.key)) {
    mistakes.push_back(unknown_key(found));
  } else if (!found.value.is_object()) {
    mistakes.push_back(fmt::format("{} is {} ({}), but must be a table of: {}", found.key,
                                   found.shown, found.where, fmt::join(known_in(found.key), ", ")));
  }
}

void check_required(const Recipe& recipe, const std::string& source, const Origins& origins,
                    Mistakes& mistakes) {
  const auto& train = recipe.train;
  if (recipe.model.path.empty() && !origins.contains("model.path")) {
    mistakes.push_back(fmt::format(
        "model.path is missing ({}): say which model to train, a Hugging Face directory", source));
  }
  if (recipe.data.train.empty() && !origins.contains("data.train")) {
    mistakes.push_back(fmt::format(
        "data.train is missing ({}): say what to train on, a text or JSONL file", source));
  }
  if (!origins.contains("train.steps") && !origins.contains("train.epochs")) {
    mistakes.push_back(fmt::format(
        "train.steps is missing ({}): say how long to train, in steps or in epochs", source));
  }
  if (train.steps && train.epochs) {
    mistakes.push_back(
        fmt::format("train.steps ({}) and train.epochs ({}) are both set; keep one of them",
                    origins.at("train.steps"), origins.at("train.epochs")));
  }
}

// The origins of those of the keys that the recipe sets, for "(recipes/x.toml:3:9)".
std::string origins_of(std::initializer_list<std::string_view> keys, const Origins& origins,
                       const std::string& source) {
  std::vector<std::string_view> known;
  for (const auto key : keys) {
    if (const auto place = origins.find(key); place != origins.end()) {
      known.push_back(place->second);
    }
  }
  return known.empty() ? source : fmt::format("{}", fmt::join(known, ", "));
}

using OriginsOf = std::function<std::string(std::initializer_list<std::string_view>)>;

void check_data(const Recipe& recipe, const OriginsOf& at, Mistakes& mistakes) {
  const Recipe::Data& data = recipe.data;
  if (recipe.train.eval_every > 0 && data.eval.empty() && data.hold_out == 0) {
    mistakes.push_back(
        fmt::format("train.eval_every is {} ({}), but data.eval is missing; set it to a data file, "
                    "or set data.hold_out",
                    recipe.train.eval_every, at({"train.eval_every"})));
  }
  if (data.hold_out > 0 && !data.eval.empty()) {
    mistakes.push_back(fmt::format(
        "data.hold_out and data.eval are both set ({}); keep one of them: the records that are "
        "held out are what is evaluated",
        at({"data.hold_out", "data.eval"})));
  }
  if (data.overlap >= data.row) {
    mistakes.push_back(fmt::format("data.overlap is {} ({}), but must be less than data.row, {}",
                                   data.overlap, at({"data.overlap", "data.row"}), data.row));
  }
}

// `at`: where these keys are set.
void check_hosts(const Recipe::Hosts& hosts, const auto& at, Mistakes& mistakes) {
  const BackendKind backend = hosts.backend;
  const bool listed = backend == BackendKind::ssh || backend == BackendKind::join;
  if (listed == hosts.list.empty()) {
    mistakes.push_back(fmt::format(
        "hosts.list is {} while hosts.backend is \"{}\" ({}); a list of hosts goes with \"ssh\" "
        "and \"join\"",
        listed ? "missing" : "set", name_of(backend), at({"hosts.backend", "hosts.list"})));
  }
  const auto only_for = [&](bool used, BackendKind kind, std::string_view key) {
    if (!used || backend == kind) return;
    mistakes.push_back(
        fmt::format("{} is set while hosts.backend is \"{}\" ({}); it goes with \"{}\"", key,
                    name_of(backend), at({"hosts.backend", key}), name_of(kind)));
  };
  only_for(!hosts.spare.empty(), BackendKind::ssh, "hosts.spare");
  only_for(hosts.simulate.any(), BackendKind::local, "hosts.simulate");
  if (backend == BackendKind::join && hosts.restart.value_or(0) > 0) {
    mistakes.push_back(fmt::format(
        "hosts.restart is {} while hosts.backend is \"join\" ({}); a token is valid for one start, "
        "so such a run cannot restart by itself",
        *hosts.restart, at({"hosts.backend", "hosts.restart"})));
  }
  for (const RecipeHost& spare : hosts.spare) {
    if (std::ranges::find(hosts.list, spare.name, &RecipeHost::name) == hosts.list.end()) continue;
    mistakes.push_back(fmt::format("host {} is in hosts.list and in hosts.spare ({}); keep one",
                                   spare.name, at({"hosts.list", "hosts.spare"})));
  }
}

void check_consistent(const Recipe& recipe, const std::string& source, const Origins& origins,
                      Mistakes& mistakes) {
  const auto& [stages, replicas, schedule, chunks, depth, partition, threads] = recipe.pipeline;
  const auto at = [&](std::initializer_list<std::string_view> keys) {
    return origins_of(keys, origins, source);
  };
  const auto rows = recipe.train.micro_batch.value_or(1) * replicas;
  if (recipe.train.batch % rows != 0) {
    mistakes.push_back(fmt::format(
        "train.batch is {} ({}), but must be a multiple of {}: train.micro_batch {} times "
        "pipeline.replicas {}",
        recipe.train.batch, at({"train.batch", "train.micro_batch", "pipeline.replicas"}), rows,
        recipe.train.micro_batch.value_or(1), replicas));
  }
  const std::int64_t ranges = std::ssize(partition.ranges);
  if (partition.kind == PartitionKind::ranges &&
      (chunks ? ranges != stages * *chunks : ranges % stages != 0)) {
    mistakes.push_back(
        fmt::format("pipeline.partition has {} ranges, but pipeline.stages is {}{} ({})", ranges,
                    stages, chunks ? fmt::format(" and pipeline.chunks {}", *chunks) : "",
                    at({"pipeline.partition", "pipeline.stages", "pipeline.chunks"})));
  }
  if (recipe.model.quantization != Quantization::none && !recipe.model.lora &&
      recipe.model.adapter.empty()) {
    mistakes.push_back(
        fmt::format("model.quantization is \"{}\" ({}), but the whole model is trained, and "
                    "weights of few bits "
                    "cannot be; add model.lora or model.adapter, or leave it out",
                    name_of(recipe.model.quantization), at({"model.quantization"})));
  }
  check_data(recipe, at, mistakes);
  for (const auto& [key, codec] : {std::pair("codec.forward", recipe.codec.forward),
                                   {"codec.backward", recipe.codec.backward}}) {
    if (codec != "delta" || recipe.codec.cache + recipe.codec.cache_disk > 0) continue;
    mistakes.push_back(
        fmt::format("codec.cache and codec.cache_disk are both 0 ({}), but {} is \"delta\", which "
                    "needs them for its activation cache; set one of them, or {} = \"fixed\"",
                    at({"codec.cache", "codec.cache_disk"}), key, key));
  }
  check_hosts(recipe.hosts, at, mistakes);
}

// Keys of [sync] must be read by the method of the recipe.
void check_sync(const std::vector<FoundValue>& found, const Recipe& recipe, Mistakes& mistakes) {
  for (const auto& value : found) {
    if (section_of(value.key) != "sync") {
      continue;
    }
    if (const auto objection = sync_objection(value.key, recipe); !objection.empty()) {
      mistakes.push_back(
          fmt::format("{} is {} ({}), {}", value.key, value.shown, value.where, objection));
    }
  }
}

// The default name is that of the file, if it is a valid name of a directory.
void complete_name(const std::string& source, Recipe& recipe, Mistakes& mistakes) {
  if (!recipe.name.empty()) {
    return;
  }
  const auto stem = std::filesystem::path(source).stem().string();
  const auto* key = find_recipe_key("name");
  if (!key->set(stem, recipe)) {
    mistakes.push_back(
        fmt::format("name is missing ({}), and the file's own name is not allowed; it must be {}",
                    source, key->allowed));
  }
}

struct MissingFeature {
  bool (*requested)(const Recipe&);
  std::string_view sentence;
};

// Settings of recipes that this build does not support. A new feature removes its line.
constexpr std::array kMissingFeatures = {
    MissingFeature{
        [](const Recipe& r) { return r.pipeline.partition.kind == PartitionKind::profile; },
        "pipeline.partition = \"profile\" is not in this build; it offers \"balanced\" and ranges "
        "such as [[0, 5], [6, 11]]"},
    MissingFeature{[](const Recipe& r) { return !r.train.micro_batch.has_value(); },
                   "train.micro_batch = \"auto\" is not in this build; give a number of rows"},
};

}  // namespace

Recipe assemble_recipe(const std::vector<FoundValue>& found, const std::string& source,
                       PartNames names) {
  Recipe recipe;
  Origins origins;
  Mistakes mistakes;
  std::string unknown_table;  // reported once, without its content
  for (auto value = found.begin(); value != found.end(); ++value) {
    if (!unknown_table.empty() && value->key.starts_with(unknown_table)) {
      continue;
    }
    // An overridden value can name a part of a plugin that is overridden, too, and not loaded.
    const bool is_last =
        std::ranges::find(value + 1, found.end(), value->key, &FoundValue::key) == found.end();
    take(*value, is_last ? names : PartNames::any, recipe, origins, mistakes);
    const bool unknown = value->value.is_object() && !is_recipe_section(value->key);
    unknown_table = unknown ? value->key + "." : "";
  }
  const bool values_fit = mistakes.empty();
  check_required(recipe, source, origins, mistakes);
  if (values_fit) {
    check_consistent(recipe, source, origins, mistakes);
    check_sync(found, recipe, mistakes);
    complete_name(source, recipe, mistakes);
  }
  if (mistakes.empty()) {
    const bool local = recipe.hosts.backend == BackendKind::local;
    if (!local && recipe.hosts.ports.first == 0) recipe.hosts.ports = kHostPorts;
    recipe.origins.by_key = std::move(origins);
    return recipe;
  }
  const auto count = mistakes.size();
  if (count == 1) {
    throw base::UserError(base::ExitCode::bad_input, mistakes.front());
  }
  mistakes.resize(std::min(count, kMostMistakesShown));
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} mistakes in {}:\n  {}{}", count, source, fmt::join(mistakes, "\n  "),
                  count > kMostMistakesShown
                      ? fmt::format("\n  and {} more", count - kMostMistakesShown)
                      : ""));
}

std::vector<std::string> unsupported_settings(const Recipe& recipe) {
  std::vector<std::string> sentences;
  for (const auto& feature : kMissingFeatures) {
    if (feature.requested(recipe)) {
      sentences.emplace_back(feature.sentence);
    }
  }
  return sentences;
}

void check_supported(const Recipe& recipe) {
  const auto sentences = unsupported_settings(recipe);
  if (!sentences.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("recipe {}: {}", recipe.name, fmt::join(sentences, "\n  ")));
  }
}

}  // namespace strait::recipe
