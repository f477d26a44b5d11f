#include "launcher/recipe/recipe_assembly.h"

#include <filesystem>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"

namespace strait::recipe {

namespace {

// The first mistake often causes the others and must stay on the screen.
constexpr std::size_t kMostMistakesShown = 20;

// Keys that are no longer read, and what is done now.
struct RemovedKey {
  std::string_view name;
  std::string_view now;
};
constexpr std::array kRemovedKeys = {
    RemovedKey{"codec.rotate", "gradients of 4 bits or fewer are rotated, and nothing else is"},
    RemovedKey{"codec.rounding",
               "changes of activations are rounded to the nearest level, all other values without "
               "bias"},
    RemovedKey{"codec.cache_kind",
               "cached values are bfloat16, and codec.cache_disk holds what memory does not"},
    RemovedKey{"sync.reference_dtype", "agreed weights and error feedback are float32"},
    RemovedKey{"sync.blend", "half of a replica's own weights is kept"},
    RemovedKey{"sync.warmup", "a fifteenth of the run sends exact means, two steps at least"},
    RemovedKey{"checkpoint.caches", "checkpoints hold the activation caches"},
    RemovedKey{"hosts.slurm", "options of a job are given to sbatch or srun"},
    RemovedKey{"hosts.simulate.jitter", "hosts.simulate.delay is the mean"}};

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
  std::string_view key = found.key;
  std::string_view section = section_of(key);
  bool is_table = found.value.is_object();
  // --set names a key of a table, and that may be what is unknown.
  for (; !section.empty() && known_in(section).empty(); section = section_of(key)) {
    if (find_recipe_key(section) != nullptr) {
      return fmt::format("unknown key {} ({}); {} is a value and has no keys", found.key,
                         found.where, section);
    }
    key = section;
    is_table = true;
  }
  const auto near = proposal_for(key);
  return fmt::format("unknown {} {} ({}){} known {}: {}", is_table ? "table" : "key", key,
                     found.where, near.empty() ? ";" : fmt::format("; did you mean {}?", near),
                     section.empty() ? "at the top" : fmt::format("in [{}]", section),
                     fmt::join(known_in(section), ", "));
}

// "[a, b]" with the quotes that a shell has removed.
RecipeValue list_of_texts(std::string_view written) {
  RecipeValue list = RecipeValue::array();
  if (written.size() < 3 || !written.starts_with('[') || !written.ends_with(']')) return list;
  std::string_view rest = written.substr(1, written.size() - 2);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    std::string_view part = rest.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    list.push_back(std::string(part));
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return list;
}

// What the user wrote as the value of --set; null: the value is of the recipe.
std::optional<std::string> written_override(const FoundValue& found) {
  const std::string start = fmt::format("--set {}=", found.key);
  if (!found.where.starts_with(start)) return std::nullopt;
  return found.where.substr(start.size());
}

// An argument of --set is read as TOML where it is TOML: a name of digits is a number, and some are
// dates. Where only a text can be meant it is the text that was written.
FoundValue as_meant(FoundValue found, const RecipeKey& key) {
  const auto text = written_override(found);
  Recipe scratch;
  if (!text || found.value.is_string() || found.value.is_structured()) return found;
  if (!key.set(found.value, scratch) && key.set(*text, scratch)) found.value = *text;
  return found;
}

// ".001" and "1." are no numbers in TOML.
std::string advice_on_point(const std::string& text, const RecipeKey& key) {
  std::string number = text;
  if (number.starts_with('.')) number.insert(0, 1, '0');
  if (number.ends_with('.')) number += '0';
  const bool has_digits = text.find_first_of("0123456789") != text.npos;
  if (number == text || !has_digits || !RecipeValue::accept(number)) return "";
  Recipe scratch;
  if (!key.set(RecipeValue::parse(number), scratch)) return "";
  return fmt::format("; a number has digits on both sides of its point: {}", number);
}

// The texts in a list need quotes, and so does a text that begins like a list or a table.
std::string advice_to_quote(const FoundValue& found, const RecipeKey& key) {
  const auto written = written_override(found);
  if (!written) return "";
  const std::string& text = *written;
  Recipe scratch;
  if (found.value.is_string()) {
    if (std::string advice = advice_on_point(text, key); !advice.empty()) return advice;
    const RecipeValue list = list_of_texts(text);
    if (text.find_first_of("\"'\\") != text.npos || list.empty() || !key.set(list, scratch)) {
      return "";
    }
    return fmt::format("; the texts of a list have to be in quotes: --set '{}={}'", found.key,
                       list.dump());
  }
  if (text.find_first_of("\"'\\") != text.npos || !key.set(text, scratch)) return "";
  return fmt::format("; it was read as {}, a text has to be in quotes: --set '{}=\"{}\"'",
                     found.value.is_array() ? "a list" : "a table", found.key, text);
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
                     allowed_by(key), proposal + advice_to_quote(found, key));
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
    const FoundValue meant = as_meant(found, *key);
    if (!key->set(meant.value, recipe) || is_unknown_part(meant, *key, names)) {
      mistakes.push_back(wrong_value(meant, *key));
    }
  } else if (const auto* removed = std::ranges::find(kRemovedKeys, found.key, &RemovedKey::name);
             removed != kRemovedKeys.end()) {
    mistakes.push_back(fmt::format("{} is {} ({}), but this key was removed: {}; leave it out",
                                   found.key, found.shown, found.where, removed->now));
  } else if (!is_recipe_section(found.key)) {
    mistakes.push_back(unknown_key(found));
  } else if (!found.value.is_object()) {
    mistakes.push_back(fmt::format("{} is {} ({}), but must be a table of: {}", found.key,
                                   found.shown, found.where, fmt::join(known_in(found.key), ", ")));
  }
}

// The name of a file as that of a run: "my-chat-file" of "my chat file". Empty: nothing is left.
std::string run_name_of(const std::string& stem) {
  std::string name;
  for (const char c : stem) {
    const bool kept = base::is_ascii_alphanumeric(c) || c == '.' || c == '_';
    const char next = kept ? c : '-';
    // A run's name begins with a letter or digit.
    if (name.empty() && !base::is_ascii_alphanumeric(next)) continue;
    if (next != '-' || name.back() != '-') name += next;
  }
  name.resize(std::min(name.size(), kLongestRunName));
  while (name.ends_with('-')) name.pop_back();
  return name;
}

// The default name is that of the file, where it cannot be one of a directory the nearest.
void complete_name(const std::string& source, Recipe& recipe, Mistakes& mistakes) {
  if (!recipe.name.empty()) {
    return;
  }
  const auto stem = std::filesystem::path(source).stem().string();
  const auto* key = find_recipe_key("name");
  if (!key->set(stem, recipe) && !key->set(run_name_of(stem), recipe)) {
    mistakes.push_back(
        fmt::format("name is missing ({}), and the file's own name gives none; it must be {}",
                    source, key->allowed));
  }
}

// Where hosts are listed and nothing says which of them take which stages, the plan chooses, and
// with the stages all that is left open and changes no result.
void leave_open(const Origins& origins, Recipe& recipe) {
  Recipe::Pipeline& pipeline = recipe.pipeline;
  const PartitionKind partition = pipeline.partition.kind;
  const bool placed = origins.contains("pipeline.stages") || !pipeline.hosts.empty() ||
                      partition == PartitionKind::ranges || partition == PartitionKind::plugin;
  pipeline.choose_stages |= stores_on_hosts(recipe.hosts.backend) && !placed;
  if (!pipeline.choose_stages) return;
  pipeline.choose_replicas |= !origins.contains("pipeline.replicas");
  pipeline.choose_schedule |= !origins.contains("pipeline.schedule");
  recipe.model.choose_recompute |= !origins.contains("model.recompute");
  if (!origins.contains("train.micro_batch")) recipe.train.micro_batch.reset();
}

}  // namespace

Recipe assemble_recipe(const std::vector<FoundValue>& found, const std::string& source,
                       PartNames names) {
  Recipe recipe;
  Origins origins;
  Mistakes mistakes;
  // Tables that are no sections: values, or unknown and reported once. Their keys need not follow.
  std::vector<std::string> tables;
  for (auto value = found.begin(); value != found.end(); ++value) {
    if (std::ranges::any_of(
            tables, [&](const std::string& table) { return value->key.starts_with(table); })) {
      continue;
    }
    // An overridden value can name a part of a plugin that is overridden, too, and not loaded.
    const bool is_last =
        std::ranges::find(value + 1, found.end(), value->key, &FoundValue::key) == found.end();
    take(*value, is_last ? names : PartNames::any, recipe, origins, mistakes);
    if (value->value.is_object() && !is_recipe_section(value->key)) {
      tables.push_back(value->key + ".");
    }
  }
  const bool values_fit = mistakes.empty();
  check_required(recipe, source, origins, mistakes);
  if (values_fit) {
    leave_open(origins, recipe);
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
      base::ExitCode::bad_input, "{} mistakes in {}:\n  {}{}", count, source,
      fmt::join(mistakes, "\n  "),
      count > kMostMistakesShown ? fmt::format("\n  and {} more", count - kMostMistakesShown) : "");
}

}  // namespace strait::recipe
