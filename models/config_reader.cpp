#include "models/config_reader.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/json_depth.h"

namespace strait::models {

ConfigReader::ConfigReader(std::string_view text, std::string file) : file_(std::move(file)) {
  if (json_depth(text) > kMostJsonDepth) {
    throw ConfigError(
        fmt::format("{}: lists and objects are nested deeper than {}; expected the "
                    "config.json of a Hugging Face model",
                    file_, kMostJsonDepth));
  }
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw ConfigError(
        fmt::format("{}: not JSON, wrong at byte {}; expected the config.json of a "
                    "Hugging Face model",
                    file_, error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw ConfigError(fmt::format(
        "{}: a number in it is beyond {:.2}; expected the config.json of a Hugging Face model",
        file_, std::numeric_limits<double>::max()));
  }
  if (!parsed.is_object()) {
    throw ConfigError(fmt::format("{}: expected a JSON object with the fields of a model, found {}",
                                  file_, parsed.type_name()));
  }
  fields_ = std::make_unique<const nlohmann::json>(std::move(parsed));
}

ConfigReader::ConfigReader(std::string file, std::string path, nlohmann::json fields)
    : file_(std::move(file)),
      path_(std::move(path)),
      fields_(std::make_unique<const nlohmann::json>(std::move(fields))) {}

ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

const nlohmann::json* ConfigReader::find(const std::string& field) const {
  const auto found = fields_->find(field);
  return found == fields_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(const std::string& field) const { return find(field) != nullptr; }

bool ConfigReader::is_null(const std::string& field) const {
  const auto found = fields_->find(field);
  return found != fields_->end() && found->is_null();
}

bool ConfigReader::is_list(const std::string& field) const {
  const nlohmann::json* value = find(field);
  return value != nullptr && value->is_array();
}

bool ConfigReader::is_string(const std::string& field) const {
  const nlohmann::json* value = find(field);
  return value != nullptr && value->is_string();
}

bool ConfigReader::is_empty(const std::string& field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr || *value == false) return true;
  return value->is_string() ? value->get_ref<const std::string&>().empty() : value->empty();
}

std::vector<std::string> ConfigReader::names() const {
  std::vector<std::string> all;
  for (const auto& [name, value] : fields_->items()) all.push_back(name);
  return all;
}

void ConfigReader::refuse(const std::string& field, const std::string& expected) const {
  const nlohmann::json* value = find(field);
  std::string shown = value == nullptr ? "absent" : value->dump();
  constexpr std::size_t kShown = 60;
  if (shown.size() > kShown) shown = shown.substr(0, kShown) + "…";
  throw ConfigError(
      fmt::format("{}: {}{} is {}, expected {}", file_, path_, field, shown, expected));
}

std::int64_t ConfigReader::integer(const std::string& field, std::int64_t absent,
                                   std::int64_t lowest, std::int64_t highest) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return absent;
  const bool fits = value->is_number_unsigned()
                        ? std::cmp_less_equal(value->get<std::uint64_t>(), highest)
                        : value->is_number_integer();
  if (!fits || value->get<std::int64_t>() < lowest || value->get<std::int64_t>() > highest) {
    refuse(field, fmt::format("a whole number from {} to {}", lowest, highest));
  }
  return value->get<std::int64_t>();
}

double ConfigReader::number(const std::string& field, double absent, double lowest,
                            double highest) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return absent;
  if (!value->is_number() || !(value->get<double>() >= lowest && value->get<double>() <= highest)) {
    refuse(field, fmt::format("a number from {} to {}", lowest, highest));
  }
  return value->get<double>();
}

bool ConfigReader::boolean(const std::string& field, bool absent) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) refuse(field, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::string(const std::string& field, const std::string& absent) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return absent;
  if (!value->is_string()) refuse(field, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> ConfigReader::strings(const std::string& field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> all;
  if (!value->is_array()) refuse(field, "a list of strings");
  for (const nlohmann::json& element : *value) {
    if (!element.is_string()) refuse(field, "a list of strings");
    all.push_back(element.get<std::string>());
  }
  return all;
}

std::optional<std::vector<double>> ConfigReader::numbers(const std::string& field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return std::nullopt;
  std::vector<double> all;
  if (!value->is_array()) refuse(field, "a list of numbers");
  for (const nlohmann::json& element : *value) {
    if (!element.is_number()) refuse(field, "a list of numbers");
    all.push_back(element.get<double>());
  }
  return all;
}

ConfigReader ConfigReader::object(const std::string& field) const {
  const nlohmann::json* value = find(field);
  if (value != nullptr && !value->is_object()) refuse(field, "an object");
  return {file_, path_ + field + ".", value == nullptr ? nlohmann::json::object() : *value};
}

}  // namespace strait::models
