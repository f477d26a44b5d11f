#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "framework/fields/fields.h"

// Structs as JSON objects (see fields.h). json_fields.h reads them.
namespace strait::fields {

// How messages and files differ.
struct JsonStyle {
  bool null_if_absent =
      false;  // std::optional without a value: null (files), or no field (messages)
  std::size_t most_text = static_cast<std::size_t>(-1);  // longer texts are truncated when written
};
inline constexpr JsonStyle kFileStyle{.null_if_absent = true};

// A type with its own JSON: specialise with `write(const T&)` and `read(const json&)`.
template <class T>
struct OwnJson;
template <class T>
concept HasOwnJson = requires(const nlohmann::json& json) {
  OwnJson<T>::read(json);
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsMap = false;
template <class T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;

// Writes the described fields into an object.
class JsonWriter {
 public:
  using json = nlohmann::json;
  JsonWriter(json& object, const JsonStyle& style) : object_(object), style_(style) {}

  template <class T>
  void operator()(const char* key, const T& value) {
    object_[key] = form(value);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) object_[key] = form(*value);
    if (!value && style_.null_if_absent) object_[key] = nullptr;
  }

  // The JSON of a value of any described type.
  json form(const std::string& text) const { return text.substr(0, style_.most_text); }
  static json form(const std::set<std::uint32_t>& set) { return set; }
  template <class T>
  json form(const T& value) const {
    if constexpr (HasOwnJson<T>) {
      return OwnJson<T>::write(value);
    } else if constexpr (NamedEnum<T>) {
      return kEnumNames<T>.at(static_cast<std::size_t>(value));
    } else if constexpr (HasTextForm<T>) {
      return (value.*kTextForm<T>.text)();
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<std::underlying_type_t<T>>(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value;
    } else if constexpr (HasListForm<T>) {
      const auto list = [&](auto... member) { return json::array({form(value.*member)...}); };
      return std::apply(list, kListForm<T>);
    } else if constexpr (kIsVector<T>) {
      json list = json::array();
      for (const auto& element : value) list.push_back(form(element));
      return list;
    } else if constexpr (kIsMap<T>) {
      json object = json::object();
      for (const auto& [name, element] : value) object[name] = form(element);
      return object;
    } else {
      json object = json::object();
      JsonWriter fields(object, style_);
      describe(fields, value);
      return object;
    }
  }

 private:
  json& object_;
  const JsonStyle style_;
};

// A whole struct as an object; back: from_object().
template <class T>
nlohmann::json to_object(const T& value, const JsonStyle& style = kFileStyle) {
  nlohmann::json object = nlohmann::json::object();
  JsonWriter fields(object, style);
  if constexpr (kIsMap<T>) {
    return fields.form(value);
  } else {
    // Even if it has a JSON of its own, which may call this.
    describe(fields, value);
    return object;
  }
}

}  // namespace strait::fields
