#include "framework/data/record_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/data/data_form.h"
#include "framework/fields/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

// A text may be as long as its line.
constexpr fields::JsonLimits kRecordLimits{
    .depth = 64, .string_bytes = kLongestLine, .values = 1 << 20};

}  // namespace

void refuse_record(const std::string& origin, const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, origin + ": " + why);
}

nlohmann::json parse_line(std::string_view line, const std::string& origin) {
  try {
    return fields::parse_bounded_json(line, kRecordLimits);
  } catch (const fields::JsonError& error) {
    refuse_record(origin, fmt::format("a line that is not JSON: {}", error.what()));
  }
}

const char* kind_of(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  return value.is_array() ? "a list" : "an object";
}

std::string required_string(const nlohmann::json& object, const char* key,
                            const std::string& origin) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_record(origin, fmt::format("there is no \"{}\"", key));
  if (!found->is_string()) {
    refuse_record(origin,
                  fmt::format("\"{}\" is {} where a string is expected", key, kind_of(*found)));
  }
  return found->get<std::string>();
}

}  // namespace strait::data
