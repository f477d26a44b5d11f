#include "framework/fields/json_fields.h"

namespace strait::fields {

using nlohmann::json;

JsonReader::JsonReader(const json& object, const JsonStyle& style, std::string message)
    : object_(object), style_(style), message_(std::move(message)) {
  if (!object.is_object()) throw MessageError(message_ + " is not an object");
}

const json* JsonReader::find(const char* key) {
  const auto found = object_.find(key);
  if (found == object_.end()) return nullptr;
  known_.emplace_back(key);
  return &*found;
}

const json* JsonReader::require(const char* key) {
  const json* const found = find(key);
  if (found == nullptr) throw MessageError(message_ + ": field " + key + " is missing");
  return found;
}

void JsonReader::finish(std::string_view elsewhere) const {
  for (const auto& [name, value] : object_.items()) {
    if (name == elsewhere || std::ranges::find(known_, name) != known_.end()) continue;
    throw UnknownField(message_ + ": field " + name.substr(0, 64) + " is unknown to this build");
  }
}

void JsonReader::refuse(const char* key, const std::string& expected) const {
  throw MessageError(message_ + ": field " + key + " is not " + expected);
}

void JsonReader::take(const json& from, const char* key, std::string& to) const {
  if (!from.is_string()) refuse(key, "a text");
  to = from.get<std::string>();
}

void JsonReader::take(const json& from, const char* key, bool& to) const {
  if (!from.is_boolean()) refuse(key, "true or false");
  to = from.get<bool>();
}

void JsonReader::take(const json& from, const char* key, double& to) const {
  // JSON has no infinities and no NaN; the writer has put null for them.
  if (!from.is_number() && !from.is_null()) refuse(key, "a number");
  to = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
}

void JsonReader::take(const json& from, const char* key, std::int32_t& to) const {
  std::int64_t whole = 0;
  take(from, key, whole);
  if (!std::in_range<std::int32_t>(whole)) refuse(key, "a whole number of 32 bits");
  to = static_cast<std::int32_t>(whole);
}

void JsonReader::take(const json& from, const char* key, std::uint32_t& to) const {
  std::uint64_t whole = 0;
  take(from, key, whole);
  if (!std::in_range<std::uint32_t>(whole)) refuse(key, "a whole number below 2^32");
  to = static_cast<std::uint32_t>(whole);
}

void JsonReader::take(const json& from, const char* key, std::uint64_t& to) const {
  if (!from.is_number_unsigned()) refuse(key, "a whole number from 0");
  to = from.get<std::uint64_t>();
}

void JsonReader::take(const json& from, const char* key, std::int64_t& to) const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!from.is_number_integer() ||
      (from.is_number_unsigned() && from.get<std::uint64_t>() > kMost)) {
    refuse(key, "a whole number");
  }
  to = from.get<std::int64_t>();
}

void JsonReader::take(const json& from, const char* key, std::set<std::uint32_t>& to) const {
  std::vector<std::uint32_t> elements;
  take(from, key, elements);
  to.insert(elements.begin(), elements.end());
}

}  // namespace strait::fields
