#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/recipe_assembly.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"
#include "launcher/recipe/recipe_sync_keys.h"

namespace strait::recipe {

namespace {

// Recipes nest three deep; the limit protects the stack from hostile text.
constexpr int kDeepestToml = 16;
// Of a value in an error message.
constexpr std::size_t kMostShown = 60;

struct PlacedValue {
  toml::source_position position;
  FoundValue found;
};

std::string shown_toml(const toml::node& node) {
  std::string text;
  if (const auto* string = node.as_string()) {
    text = RecipeValue(string->get()).dump(-1, ' ', false, RecipeValue::error_handler_t::replace);
  } else if (const auto* number = node.as_floating_point(); number && std::isfinite(**number)) {
    text = RecipeValue(**number).dump();  // 0.1, where TOML's would be 0.10000000000000001
  } else if (const auto* list = node.as_array()) {
    std::vector<std::string> parts;
    for (const auto& element : *list) parts.push_back(shown_toml(element));
    text = fmt::format("[{}]", fmt::join(parts, ", "));
  } else {
    std::ostringstream out;
    node.visit([&](const auto& concrete) { out << toml::toml_formatter(concrete); });
    text = out.str();
    std::ranges::replace(text, '\n', ' ');
  }
  if (text.size() > kMostShown) {
    text.resize(kMostShown);
    text += "...";
  }
  return text;
}

[[noreturn]] void refuse_depth(const std::string& where) {
  throw base::UserError(base::ExitCode::bad_input, "values are nested deeper than {} ({})",
                        kDeepestToml, where);
}

// Dates become null, which no key allows; all other TOML values have a JSON equivalent.
RecipeValue json_of(const toml::node& node, const std::string& where, int depth) {
  if (depth > kDeepestToml) {
    refuse_depth(where);
  }
  if (const auto* list = node.as_array()) {
    RecipeValue values = RecipeValue::array();
    for (const auto& element : *list) {
      values.push_back(json_of(element, where, depth + 1));
    }
    return values;
  }
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* integer = node.as_integer()) {
    return integer->get();
  }
  if (const auto* number = node.as_floating_point()) {
    return number->get();
  }
  if (const auto* flag = node.as_boolean()) {
    return flag->get();
  }
  if (const auto* table = node.as_table()) {
    RecipeValue values = RecipeValue::object();
    for (const auto& [name, value] : *table) {
      values[std::string(name.str())] = json_of(value, where, depth + 1);
    }
    return values;
  }
  return {};
}

// `fixed_where` replaces file:line:column for values that are not from the file.
void collect(const toml::node& node, const std::string& key, const std::string& source,
             const std::string& fixed_where, int depth, std::vector<PlacedValue>& found) {
  const auto position = node.source().begin;
  const auto where = fixed_where.empty()
                         ? fmt::format("{}:{}:{}", source, position.line, position.column)
                         : fixed_where;
  if (depth > kDeepestToml) {
    refuse_depth(where);
  }
  if (!key.empty()) {
    found.push_back(
        {position,
         {key, json_of(node, where, 0), node.is_table() ? "a table" : shown_toml(node), where}});
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [name, value] : *table) {
      const auto full =
          key.empty() ? std::string(name.str()) : fmt::format("{}.{}", key, name.str());
      collect(value, full, source, fixed_where, depth + 1, found);
    }
  }
}

toml::table parse_toml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw base::UserError(base::ExitCode::bad_input, "{}:{}:{} is not TOML: {}", source, at.line,
                          at.column, error.description());
  }
}

// The value as TOML if it is exactly one TOML value, else as a string: paths need no quotes.
toml::table parse_override_value(const std::string& value) {
  try {
    toml::table table = toml::parse("value = " + value);
    if (table.size() == 1) {
      return table;
    }
  } catch (const toml::parse_error& not_toml) {
    // A name such as 1f1b, or a path: used as a string below.
    static_cast<void>(not_toml);
  }
  return toml::table{{"value", value}};
}

void collect_override(const std::string& written, std::vector<PlacedValue>& found) {
  const auto equals = written.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw base::UserError(base::ExitCode::bad_input,
                          "--set {} has no key or no value; write it as --set train.batch=32",
                          written);
  }
  const auto table = parse_override_value(written.substr(equals + 1));
  collect(*table.get("value"), written.substr(0, equals), "", "--set " + written, 0, found);
}

// "key=" removes a key, or a table, from the file and from earlier overrides. False: it is neither.
bool drop_key(const std::string& key, std::vector<PlacedValue>& file,
              std::vector<PlacedValue>& overrides) {
  const auto of_key = [&key](const PlacedValue& one) {
    return one.found.key == key || one.found.key.starts_with(key + ".");
  };
  const std::size_t dropped = std::erase_if(file, of_key) + std::erase_if(overrides, of_key);
  if (dropped > 0 || find_recipe_key(key) != nullptr) return true;
  return !key.empty() && is_recipe_section(key);
}

// Whether the overrides name another sync method than the file has, by name or by default.
bool change_sync_method(const std::vector<PlacedValue>& overrides,
                        const std::vector<PlacedValue>& file) {
  const auto method_of = [](const std::vector<PlacedValue>& values, RecipeValue method) {
    for (const PlacedValue& one : values) {
      if (one.found.key == "sync.method") method = one.found.value;
    }
    return method;
  };
  const RecipeValue before = method_of(file, kDefaultSync);
  return method_of(overrides, before) != before;
}

// If overrides change the sync method, or set one replica, the file's settings of the former method
// are dropped. sync.on_loss belongs to no method and stays.
void drop_unread_sync_keys(const std::vector<PlacedValue>& overrides,
                           std::vector<PlacedValue>& file) {
  const bool alone = std::ranges::any_of(overrides, [](const PlacedValue& one) {
    return one.found.key == "pipeline.replicas" && one.found.value == 1;
  });
  if (!alone && !change_sync_method(overrides, file)) return;
  std::erase_if(file, [alone](const PlacedValue& one) {
    return one.found.key.starts_with("sync.") && (alone || one.found.key != "sync.on_loss");
  });
}

// An override of train.steps replaces the file's train.epochs, and the other way round.
void drop_other_length(const std::vector<PlacedValue>& overrides, std::vector<PlacedValue>& file) {
  const auto sets = [&overrides](const char* key) {
    return std::ranges::any_of(overrides,
                               [key](const PlacedValue& one) { return one.found.key == key; });
  };
  const bool steps = sets("train.steps");
  const bool epochs = sets("train.epochs");
  if (steps == epochs) return;
  std::erase_if(file, [steps](const PlacedValue& one) {
    return one.found.key == (steps ? "train.epochs" : "train.steps");
  });
}

// An override of codec.budget replaces codecs and bits of the file, where a run writes what the
// plan chose; an override of one of these replaces the file's budget.
void drop_other_codec(const std::vector<PlacedValue>& overrides, std::vector<PlacedValue>& file) {
  const auto is_chosen = [](const PlacedValue& one) {
    return std::ranges::find(kChosenByBudget, one.found.key) != kChosenByBudget.end();
  };
  const auto is_budget = [](const PlacedValue& one) { return one.found.key == "codec.budget"; };
  const bool chosen = std::ranges::any_of(overrides, is_chosen);
  const bool budget = std::ranges::any_of(overrides, is_budget);
  if (budget && !chosen) std::erase_if(file, is_chosen);
  if (chosen && !budget) std::erase_if(file, is_budget);
}

// A layout that "auto" chose is of its stages: with other stages or replicas as an override its
// hosts and ranges of layers go.
void drop_former_layout(const std::vector<PlacedValue>& overrides, std::vector<PlacedValue>& file) {
  const auto is = [](const char* key) {
    return [key](const PlacedValue& one) { return one.found.key == key; };
  };
  const bool other = std::ranges::any_of(overrides, is("pipeline.stages")) ||
                     std::ranges::any_of(overrides, is("pipeline.replicas"));
  if (!other || std::erase_if(file, is("pipeline.hosts")) == 0) return;
  std::erase_if(file, [](const PlacedValue& one) {
    return one.found.key == "pipeline.partition" && one.found.value.is_array();
  });
}

// With another hosts.backend as an override, what only other backends take is left out, so that a
// recipe for hosts runs on this machine, and by tokens (plan --emit commands).
void drop_hosts_of_other_backends(const std::vector<PlacedValue>& overrides,
                                  std::vector<PlacedValue>& file) {
  RecipeValue backend;  // of several the last
  for (const PlacedValue& one : overrides) {
    if (one.found.key == "hosts.backend") backend = one.found.value;
  }
  if (backend.is_null()) return;
  std::erase_if(file, [&backend](const PlacedValue& one) {
    const std::string& key = one.found.key;
    const bool listed = backend == "ssh" || backend == "join";
    return ((key == "hosts.list" || key == "hosts.file" || key == "hosts.spare") && !listed) ||
           (key.starts_with("hosts.simulate.") && backend != "local");
  });
}

// Empty if the value of the key is not allowed; that is reported later.
std::vector<std::string> plugins_in(const std::vector<FoundValue>& found) {
  Recipe recipe;
  const RecipeKey* const key = find_recipe_key("plugins");
  for (const FoundValue& value : found) {
    if (value.key == key->name) key->set(value.value, recipe);
  }
  return recipe.plugins;
}

std::string read_text(const std::filesystem::path& file, const char* what) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw base::UserError(base::ExitCode::bad_input, "cannot read {} {}: {}", what, file.string(),
                          std::strerror(errno));
  }
  std::string text(kMostRecipeBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) {
    throw base::UserError(base::ExitCode::bad_input, "cannot read {} {}: it is not a regular file",
                          what, file.string());
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// Puts the hosts of a hostfile where a recipe or an override names it. An override of one of the
// two keys replaces both in the file.
void take_hostfile(std::vector<PlacedValue>& overrides, std::vector<PlacedValue>& file) {
  const auto names_hosts = [](const PlacedValue& one) {
    return one.found.key == "hosts.list" || one.found.key == "hosts.file";
  };
  if (std::ranges::any_of(overrides, names_hosts)) std::erase_if(file, names_hosts);
  for (std::vector<PlacedValue>* values : {&file, &overrides}) {
    const auto named = std::ranges::find(
        *values, "hosts.file",
        [](const PlacedValue& one) -> const std::string& { return one.found.key; });
    if (named == values->end() || !named->found.value.is_string()) continue;
    const std::string path = named->found.value.get<std::string>();
    if (std::ranges::count_if(*values, names_hosts) > 1) {
      throw base::UserError(base::ExitCode::bad_input,
                            "hosts.file is \"{}\" ({}), but hosts.list is set, too; "
                            "keep one of them",
                            base::printable(path), named->found.where);
    }
    named->found.key = "hosts.list";
    named->found.value = hosts_in_hostfile(read_text(path, "the hostfile"), path);
    named->found.shown = "that of " + path;
  }
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides,
                   const LoadPlugins& load) {
  return parse_recipe(read_text(file, "the recipe"), file.string(), overrides, load);
}

Recipe parse_recipe(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides, const LoadPlugins& load) {
  if (text.size() > kMostRecipeBytes) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} is larger than {} bytes, the limit of a recipe", source,
                          kMostRecipeBytes);
  }
  std::vector<PlacedValue> placed;
  collect(parse_toml(text, source), "", source, "", 0, placed);
  // toml++ sorts by name; mistakes are reported from top to bottom.
  std::ranges::stable_sort(placed, [](const PlacedValue& a, const PlacedValue& b) {
    return std::pair(a.position.line, a.position.column) <
           std::pair(b.position.line, b.position.column);
  });
  std::vector<PlacedValue> overriding;
  for (const auto& written : overrides) {
    const std::string key = written.substr(0, written.find('='));
    if (written == key + "=" && drop_key(key, placed, overriding)) continue;
    collect_override(written, overriding);
  }
  drop_unread_sync_keys(overriding, placed);
  drop_former_layout(overriding, placed);
  drop_other_length(overriding, placed);
  drop_other_codec(overriding, placed);
  drop_hosts_of_other_backends(overriding, placed);
  take_hostfile(overriding, placed);
  std::ranges::move(overriding, std::back_inserter(placed));
  std::vector<FoundValue> found;
  std::ranges::transform(placed, std::back_inserter(found), &PlacedValue::found);
  if (load) load(plugins_in(found));
  return assemble_recipe(found, source);
}

}  // namespace strait::recipe
