#pragma once

#include <limits>

#include "framework/fields/bounded_json.h"
#include "framework/fields/json_writer.h"

// The JSON back end of fields.h. Reading is strict: a missing field, an unknown field and a value
// of another type are a MessageError that names the message and the field.
namespace strait::fields {

// Reads the described fields of an object; finish() refuses others.
class JsonReader {
 public:
  using json = nlohmann::json;
  // `message` names the object in errors: "control message done".
  JsonReader(const json& object, const JsonStyle& style, std::string message);

  template <class T>
  void operator()(const char* key, T& value) {
    take(*require(key), key, value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    const json* const found = style_.null_if_absent ? require(key) : find(key);
    if (found == nullptr || (style_.null_if_absent && found->is_null())) return;
    T read{};
    take(*found, key, read);
    value = std::move(read);
  }

  // UnknownField: the object has other fields than those read, and `elsewhere`.
  void finish(std::string_view elsewhere = {}) const;

  // All of the object.
  template <class T>
  void whole(T& value) {
    if constexpr (kIsMap<T>) {
      for (const auto& [name, element] : object_.items()) take(element, name.c_str(), value[name]);
    } else {
      describe(*this, value);
      finish();
    }
  }

 private:
  const json* find(const char* key);     // null: absent
  const json* require(const char* key);  // never null
  [[noreturn]] void refuse(const char* key, const std::string& expected) const;

  void take(const json& from, const char* key, std::string& to) const;
  void take(const json& from, const char* key, bool& to) const;
  void take(const json& from, const char* key, double& to) const;
  void take(const json& from, const char* key, std::int32_t& to) const;
  void take(const json& from, const char* key, std::uint32_t& to) const;
  void take(const json& from, const char* key, std::uint64_t& to) const;
  void take(const json& from, const char* key, std::int64_t& to) const;
  void take(const json& from, const char* key, std::set<std::uint32_t>& to) const;
  template <class T>
  void take(const json& from, const char* key, std::vector<T>& to) const {
    if (!from.is_array()) refuse(key, "a list");
    for (const json& element : from) {
      if (kIsDescribed<T> && !element.is_object()) refuse(key, "a list of objects");
      take(element, key, to.emplace_back());
    }
  }
  template <class T>
  void take(const json& from, const char* key, T& to) const {
    if constexpr (HasOwnJson<T>) {
      to = OwnJson<T>::read(from);
    } else if constexpr (NamedEnum<T>) {
      const auto found = std::ranges::find(kEnumNames<T>, from);
      if (found == kEnumNames<T>.end()) refuse(key, "a known name");
      to = static_cast<T>(found - kEnumNames<T>.begin());
    } else if constexpr (HasTextForm<T>) {
      auto read =
          from.is_string() ? kTextForm<T>.parse(from.get_ref<const std::string&>()) : std::nullopt;
      if (!read) refuse(key, kTextForm<T>.expected);
      to = std::move(*read);
    } else if constexpr (std::is_enum_v<T>) {
      constexpr auto kMost = std::numeric_limits<std::underlying_type_t<T>>::max();
      std::uint64_t number = 0;
      take(from, key, number);
      if (std::cmp_greater(number, kMost)) {
        refuse(key, "a whole number up to " + std::to_string(kMost));
      }
      to = static_cast<T>(number);
    } else if constexpr (HasListForm<T>) {
      constexpr std::size_t kSize = std::tuple_size_v<std::remove_const_t<decltype(kListForm<T>)>>;
      if (!from.is_array() || from.size() != kSize) {
        refuse(key, "a list of " + std::to_string(kSize));
      }
      std::size_t i = 0;
      std::apply([&](auto... member) { (take(from[i++], key, to.*member), ...); }, kListForm<T>);
    } else {
      if (!from.is_object()) refuse(key, "an object");
      JsonReader(from, style_, message_ + ", " + key).whole(to);
    }
  }

  // Elements of a list that are objects with described fields.
  template <class T>
  static constexpr bool kIsDescribed = std::is_class_v<T> && !HasListForm<T> && !HasOwnJson<T> &&
                                       !HasTextForm<T> && !std::same_as<T, std::string>;

  const json& object_;
  const JsonStyle style_;
  const std::string message_;
  std::vector<std::string_view> known_;
};

// A whole struct from its object (to_object()). `name` names it in errors.
template <class T>
T from_object(const nlohmann::json& object, const std::string& name,
              const JsonStyle& style = kFileStyle) {
  T value;
  JsonReader(object, style, name).whole(value);
  return value;
}
// From untrusted text.
template <class T>
T from_text(std::string_view text, const std::string& name, const JsonLimits& limits = {}) {
  try {
    return from_object<T>(parse_bounded_json(text, limits), name);
  } catch (const JsonError& error) {
    throw MessageError(name + ": " + error.what());
  }
}

}  // namespace strait::fields
