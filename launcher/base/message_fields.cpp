#include "launcher/base/message_fields.h"

#include <limits>

namespace strait::base {

using nlohmann::json;

void FieldReader::finish(std::size_t others) const {
  if (object_.size() != known_ + others) {
    throw ControlError(message_ + ": has a field that this build does not know");
  }
}

void FieldReader::wrong(const char* key, const char* expected) const {
  throw ControlError(message_ + ": field " + key + " is not " + expected);
}

void FieldReader::take(const json& from, const char* key, std::string& to) const {
  if (!from.is_string()) wrong(key, "a text");
  to = from.get<std::string>();
}

void FieldReader::take(const json& from, const char* key, bool& to) const {
  if (!from.is_boolean()) wrong(key, "true or false");
  to = from.get<bool>();
}

void FieldReader::take(const json& from, const char* key, double& to) const {
  // JSON has no word for what is not finite; null stands for it.
  if (!from.is_number() && !from.is_null()) wrong(key, "a number");
  to = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
}

void FieldReader::take(const json& from, const char* key, std::uint32_t& to) const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t whole = 0;
  take(from, key, whole);
  if (whole > kMost) wrong(key, "a whole number below 2^32");
  to = static_cast<std::uint32_t>(whole);
}

void FieldReader::take(const json& from, const char* key, std::uint64_t& to) const {
  if (!from.is_number_unsigned()) wrong(key, "a whole number from 0");
  to = from.get<std::uint64_t>();
}

void FieldReader::take(const json& from, const char* key, std::int64_t& to) const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!from.is_number_integer() ||
      (from.is_number_unsigned() && from.get<std::uint64_t>() > kMost)) {
    wrong(key, "a whole number");
  }
  to = from.get<std::int64_t>();
}

void FieldReader::take(const json& from, const char* key, store::Step& to) const {
  std::int64_t step = 0;
  take(from, key, step);
  if (step < 0) wrong(key, "a step");
  to = store::Step{step};
}

void FieldReader::take(const json& from, const char* key, net::ProcessName& to) const {
  const auto name =
      from.is_string() ? net::ProcessName::parse(from.get<std::string>()) : std::nullopt;
  if (!name) wrong(key, "the name of a process");
  to = *name;
}

void FieldReader::take(const json& from, const char* key, ExitCode& to) const {
  std::int64_t code = 0;
  take(from, key, code);
  if (code < 0 || code > 255) wrong(key, "an exit code");
  to = ExitCode{static_cast<int>(code)};
}

void FieldReader::take(const json& from, const char* key,
                       std::map<std::string, std::string>& to) const {
  if (!from.is_object()) wrong(key, "an object");
  for (const auto& [name, value] : from.items()) take(value, key, to[name]);
}

void FieldReader::take(const json& from, const char* key, std::vector<std::string>& to) const {
  if (!from.is_array()) wrong(key, "a list");
  for (const json& element : from) take(element, key, to.emplace_back());
}

void FieldReader::take(const json& from, const char* key, std::vector<std::uint32_t>& to) const {
  if (!from.is_array()) wrong(key, "a list");
  for (const json& element : from) take(element, key, to.emplace_back());
}

}  // namespace strait::base
