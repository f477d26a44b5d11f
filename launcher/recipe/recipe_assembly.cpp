#include "launcher/recipe/recipe_assembly.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "launcher/base/text.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/base/errors.h"

namespace strait::recipe {

namespace {

// More would scroll the first, which mostly is the cause of the others, off the screen.
constexpr std::size_t kMostMistakesShown = 20;

// Where each key was last set, for sentences about keys that contradict each other.
using Places = std::map<std::string, std::string, std::less<>>;
using Mistakes = std::vector<std::string>;

// What may follow `section`, by last part: keys and sections.
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

// The name that was meant: in its own section, or the same word in another one.
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
    std::vector<std::string_view> words = key.words;
    words.insert(words.end(), parts.begin(), parts.end());
    const auto near = base::nearest_name(*written, words);
    proposal = near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near);
  }
  if (key.objection) proposal += "; " + key.objection(found.value);
  return fmt::format("{} is {} ({}), but must be {}{}", found.key, found.shown, found.where,
                     allowed_by(key), proposal);
}

// Whether the value names no part that there is, where it has to.
bool is_unknown_part(const FoundValue& found, const RecipeKey& key, PartNames names) {
  if (names == PartNames::any || !key.names) {
    return false;
  }
  const auto known = key.names();
  return std::ranges::none_of(known, [&](const std::string& name) { return found.value == name; });
}

void take(const FoundValue& found, PartNames names, Recipe& recipe, Places& places,
          Mistakes& mistakes) {
  places[found.key] = found.where;
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

void check_required(const Recipe& recipe, const std::string& source, const Places& places,
                    Mistakes& mistakes) {
  const auto& train = recipe.train;
  if (recipe.model.path.empty() && !places.contains("model.path")) {
    mistakes.push_back(fmt::format(
        "model.path is missing ({}): say which model to train, a Hugging Face directory", source));
  }
  if (recipe.data.train.empty() && !places.contains("data.train")) {
    mistakes.push_back(fmt::format(
        "data.train is missing ({}): say what to train on, a text or JSONL file", source));
  }
  if (!places.contains("train.steps") && !places.contains("train.epochs")) {
    mistakes.push_back(fmt::format(
        "train.steps is missing ({}): say how long to train, in steps or in epochs", source));
  }
  if (train.steps && train.epochs) {
    mistakes.push_back(fmt::format(
        "train.steps ({}) and train.epochs ({}) are both set; keep the one that is meant",
        places.at("train.steps"), places.at("train.epochs")));
  }
}

// The places of those of the keys that the recipe sets, for "(recipes/x.toml:3:9)".
std::string places_of(std::initializer_list<std::string_view> keys, const Places& places,
                      const std::string& source) {
  std::vector<std::string_view> known;
  for (const auto key : keys) {
    if (const auto place = places.find(key); place != places.end()) {
      known.push_back(place->second);
    }
  }
  return known.empty() ? source : fmt::format("{}", fmt::join(known, ", "));
}

void check_consistent(const Recipe& recipe, const std::string& source, const Places& places,
                      Mistakes& mistakes) {
  const auto& [stages, replicas, schedule, chunks, depth, partition, threads] = recipe.pipeline;
  const auto at = [&](std::initializer_list<std::string_view> keys) {
    return places_of(keys, places, source);
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
  if (recipe.train.eval_every > 0 && recipe.data.eval.empty()) {
    mistakes.push_back(fmt::format(
        "train.eval_every is {} ({}), but data.eval is missing: say what to evaluate on",
        recipe.train.eval_every, at({"train.eval_every"})));
  }
  if (recipe.codec.backward == "delta") {
    mistakes.push_back(
        fmt::format("codec.backward is \"delta\" ({}), but gradients do not repeat from visit to "
                    "visit; it must "
                    "be \"raw\", \"fixed\" or \"auto\"",
                    at({"codec.backward"})));
  }
  if (recipe.codec.forward == "delta" && recipe.codec.cache + recipe.codec.cache_disk == 0) {
    mistakes.push_back(
        fmt::format("codec.cache and codec.cache_disk are both 0 ({}), but codec.forward is "
                    "\"delta\", which has "
                    "to remember samples; give it memory or disk, or say \"fixed\"",
                    at({"codec.cache", "codec.cache_disk"})));
  }
  const BackendKind backend = recipe.hosts.backend;
  const bool listed = backend == BackendKind::ssh || backend == BackendKind::join;
  if (listed == recipe.hosts.list.empty()) {
    mistakes.push_back(fmt::format(
        "hosts.list is {} while hosts.backend is \"{}\" ({}); a list of hosts goes with \"ssh\" "
        "and \"join\"",
        listed ? "missing" : "set", name_of(backend), at({"hosts.backend", "hosts.list"})));
  }
}

// What is said about replicas has to be of use to the method that was asked for.
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

// The run is called as its file is; what makes no good directory name has to be said.
void complete_name(const std::string& source, Recipe& recipe, Mistakes& mistakes) {
  if (!recipe.name.empty()) {
    return;
  }
  const auto stem = std::filesystem::path(source).stem().string();
  const auto* key = find_recipe_key("name");
  if (!key->set(stem, recipe)) {
    mistakes.push_back(
        fmt::format("name is missing ({}) and the file's own name is none; it must be {}", source,
                    key->allowed));
  }
}

}  // namespace

Recipe assemble_recipe(const std::vector<FoundValue>& found, const std::string& source,
                       PartNames names) {
  Recipe recipe;
  Places places;
  Mistakes mistakes;
  std::string strange_table;  // said once; what is in it is no news
  for (auto value = found.begin(); value != found.end(); ++value) {
    if (!strange_table.empty() && value->key.starts_with(strange_table)) {
      continue;
    }
    // What is overridden may name a part of plugins that are overridden too.
    const bool counts =
        std::ranges::find(value + 1, found.end(), value->key, &FoundValue::key) == found.end();
    take(*value, counts ? names : PartNames::any, recipe, places, mistakes);
    const bool strange = value->value.is_object() && !is_recipe_section(value->key);
    strange_table = strange ? value->key + "." : "";
  }
  const bool values_fit = mistakes.empty();
  check_required(recipe, source, places, mistakes);
  if (values_fit) {
    check_consistent(recipe, source, places, mistakes);
    check_sync(found, recipe, mistakes);
    complete_name(source, recipe, mistakes);
  }
  if (mistakes.empty()) {
    const bool local = recipe.hosts.backend == BackendKind::local;
    if (!local && recipe.hosts.ports.first == 0) recipe.hosts.ports = kHostPorts;
    recipe.said_at.by_key = std::move(places);
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

}  // namespace strait::recipe
