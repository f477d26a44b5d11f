#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_error.h"

namespace strait::models {

// Typed access to the fields of a config.json. An absent or null field gives the default. A field
// of the wrong type or out of range throws ConfigError, which names file, field, value and what was
// expected.
class ConfigReader {
 public:
  ConfigReader(std::string_view text, std::string file);
  ~ConfigReader();
  ConfigReader(ConfigReader&&) noexcept;
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  bool has(const std::string& field) const;      // present and not null
  bool is_null(const std::string& field) const;  // present as null
  bool is_list(const std::string& field) const;
  bool is_string(const std::string& field) const;
  // Absent, null, false, or a string, list or object without content.
  bool is_empty(const std::string& field) const;
  std::vector<std::string> names() const;  // of all fields

  std::int64_t integer(const std::string& field, std::int64_t absent, std::int64_t lowest,
                       std::int64_t highest) const;
  double number(const std::string& field, double absent, double lowest, double highest) const;
  bool boolean(const std::string& field, bool absent) const;
  std::string string(const std::string& field, const std::string& absent) const;

  // Elements of a list. Nullopt: the field is absent.
  std::optional<std::vector<std::string>> strings(const std::string& field) const;
  std::optional<std::vector<double>> numbers(const std::string& field) const;
  // The fields of an object, whose errors name it: "rope_scaling.factor". Empty if it is absent.
  ConfigReader object(const std::string& field) const;

  // Throws for a rule that the caller checks: "n_head is 5, expected a divisor of n_embd (64)".
  [[noreturn]] void refuse(const std::string& field, const std::string& expected) const;

 private:
  ConfigReader(std::string file, std::string path, nlohmann::json fields);
  const nlohmann::json* find(const std::string& field) const;

  std::string file_;
  std::string path_;  // prefix of field names in errors: "rope_scaling."
  std::unique_ptr<const nlohmann::json> fields_;
};

}  // namespace strait::models
