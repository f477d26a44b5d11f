

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/recipe_assembly.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

namespace {

RecipeValue::json_pointer pointer_to(const std::string& key) {
  RecipeValue::json_pointer pointer;
  std::size_t from = 0;
  for (auto dot = key.find('.'); dot != std::string::npos; dot = key.find('.', from)) {
    pointer /= key.substr(from, dot - from);
    from = dot + 1;
  }
  return pointer / key.substr(from);
}

std::string key_text(const std::string& name) {
  const bool bare = !name.empty() && std::ranges::all_of(name, [](char c) {
    return base::is_ascii_alphanumeric(c) || c == '_' || c == '-';
  });
  return bare ? name : RecipeValue(name).dump();
}

// Arrays, numbers and strings have the same form in JSON and TOML; tables do not.
std::string toml_text(const RecipeValue& value) {
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& [name, part] : value.items()) {
    parts.push_back(value.is_array() ? toml_text(part)
                                     : fmt::format("{} = {}", key_text(name), toml_text(part)));
  }
  return value.is_array() ? fmt::format("[{}]", fmt::join(parts, ", "))
                          : fmt::format("{{ {} }}", fmt::join(parts, ", "));
}

// The line of a key; of a table its header.
std::string toml_line(const RecipeKey& key, const RecipeValue& value) {
  return is_recipe_section(key.name)
             ? fmt::format("[{}]", key.name)
             : fmt::format("{} = {}", last_part_of(key.name), toml_text(value));
}

// The lines of all keys, below the headers of their tables. Keys with an empty line are omitted.
template <class Line>
std::string written_by_tables(const Line& line) {
  std::string text;
  std::string_view open;
  for (const auto& key : recipe_keys()) {
    const std::string written = line(key);
    if (written.empty()) {
      continue;
    }
    if (is_recipe_section(key.name)) {
      text += "\n";
      open = key.name;
    } else if (const auto section = section_of(key.name); section != open) {
      text += fmt::format("\n[{}]\n", section);
      open = section;
    }
    text += written + "\n";
  }
  return text;
}

// The default of a key: where it has none because it does not count, that of a recipe in which it
// does. Null: there is none.
RecipeValue default_of(const RecipeKey& key) {
  Recipe recipe;
  if (RecipeValue value = key.get(recipe); !value.is_null()) return value;
  for (const std::string_view choice : key.choices) {
    if (key.set(RecipeValue(choice), recipe) && recipe == Recipe()) return choice;
    recipe = Recipe();
  }
  recipe.model.lora = Recipe::Lora{};
  recipe.pipeline.replicas = 2;
  for (const auto& method : part_names(PartKind::sync_method)) {
    recipe.sync.method = method;
    if (RecipeValue value = key.get(recipe); !value.is_null()) {
      return value;
    }
  }
  return {};
}

// Above all keys.
constexpr const char* kReferenceHead =
    "# Every key with its default. What is behind a \"#\" is absent unless you set it. A recipe "
    "needs\n"
    "# model.path, data.train, and train.steps or train.epochs.\n\n";

void collect_json(const RecipeValue& node, const std::string& key, const std::string& source,
                  std::vector<FoundValue>& found) {
  for (const auto& [name, value] : node.items()) {
    const auto full = key.empty() ? name : fmt::format("{}.{}", key, name);
    found.push_back({full, value,
                     value.is_object()
                         ? "a table"
                         : value.dump(-1, ' ', false, RecipeValue::error_handler_t::replace),
                     source});
    if (value.is_object() && is_recipe_section(full)) {
      collect_json(value, full, source, found);
    }
  }
}

}  // namespace

std::string recipe_to_toml(const Recipe& recipe) {
  return written_by_tables([&](const RecipeKey& key) {
    const RecipeValue value = key.get(recipe);
    return value.is_null() ? std::string() : toml_line(key, value);
  });
}

RecipeValue recipe_to_json(const Recipe& recipe) {
  RecipeValue json = RecipeValue::object();
  for (const auto& key : recipe_keys()) {
    if (RecipeValue value = key.get(recipe); !value.is_null()) {
      json[pointer_to(key.name)] = std::move(value);
    }
  }
  return json;
}

Recipe without_secrets(Recipe recipe) {
  for (std::vector<RecipeHost>* hosts : {&recipe.hosts.list, &recipe.hosts.spare}) {
    for (RecipeHost& host : *hosts) host.environment.clear();
  }
  recipe.on = {};  // commands may hold keys of services
  return recipe;
}

Recipe recipe_from_json(const RecipeValue& json, const std::string& source) {
  if (!json.is_object()) {
    throw base::UserError(base::ExitCode::bad_input, "{} holds no recipe but a JSON {}", source,
                          json.type_name());
  }
  std::vector<FoundValue> found;
  collect_json(json, "", source, found);
  return assemble_recipe(found, source, PartNames::any);
}

std::string recipe_reference() {
  const Recipe defaults;
  return std::string(kReferenceHead) + written_by_tables([&](const RecipeKey& key) {
           const RecipeValue value = default_of(key);
           const auto line = value.is_null() ? fmt::format("{} =", last_part_of(key.name))
                                             : toml_line(key, value);
           return fmt::format("{:<32}  # {}: {}", (key.get(defaults).is_null() ? "# " : "") + line,
                              key.help, allowed_by(key));
         });
}

}  // namespace strait::recipe
