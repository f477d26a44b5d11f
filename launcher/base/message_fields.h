#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/net/process_name.h"
#include "framework/store/sample.h"
#include "launcher/base/control_error.h"
#include "launcher/base/exit_code.h"

namespace strait::base {

// For `describe(auto& f, Is<Hello> auto& m)`: a message that is const or not.
template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// Writes the fields that `describe` names into an object.
class FieldWriter {
 public:
  using json = nlohmann::json;
  FieldWriter(nlohmann::json& object, std::size_t most_text)
      : object_(object), most_text_(most_text) {}

  template <class T>
  void operator()(const char* key, const T& value) {
    object_[key] = said(value);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) object_[key] = said(*value);
  }

 private:
  // A text of ours that is too long for the other side's limits is cut, not refused. A quarter,
  // because bytes that are no UTF-8 grow threefold when they are replaced.
  json said(const std::string& text) const { return text.substr(0, most_text_ / 4); }
  static json said(store::Step step) { return store::number(step); }
  static json said(const net::ProcessName& process) { return process.text(); }
  static json said(ExitCode code) { return number(code); }
  static json said(const std::map<std::string, std::string>& map) { return map; }
  static json said(const std::vector<std::string>& list) { return list; }
  static json said(const std::vector<std::uint32_t>& list) { return list; }
  template <class T>
  requires std::is_arithmetic_v<T>
  static json said(T value) { return value; }
  template <class T>
  json said(const std::vector<T>& list) const {
    json out = json::array();
    for (const T& element : list) {
      json object = json::object();
      FieldWriter fields(object, most_text_);
      describe(fields, element);
      out.push_back(std::move(object));
    }
    return out;
  }

  json& object_;
  const std::size_t most_text_;
};

// Reads them out of one, and sees to it that there is nothing else.
class FieldReader {
 public:
  using json = nlohmann::json;
  FieldReader(const json& object, std::string message)
      : object_(object), message_(std::move(message)) {}

  template <class T>
  void operator()(const char* key, T& value) {
    const auto found = object_.find(key);
    if (found == object_.end()) throw ControlError(message_ + ": field " + key + " is missing");
    ++known_;
    take(*found, key, value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    ++known_;
    take(*found, key, value.emplace());
  }

  // `others`: fields that were looked at elsewhere.
  void finish(std::size_t others) const;

 private:
  [[noreturn]] void wrong(const char* key, const char* expected) const;

  void take(const json& from, const char* key, std::string& to) const;
  void take(const json& from, const char* key, bool& to) const;
  void take(const json& from, const char* key, double& to) const;
  void take(const json& from, const char* key, std::uint32_t& to) const;
  void take(const json& from, const char* key, std::uint64_t& to) const;
  void take(const json& from, const char* key, std::int64_t& to) const;
  void take(const json& from, const char* key, store::Step& to) const;
  void take(const json& from, const char* key, net::ProcessName& to) const;
  void take(const json& from, const char* key, ExitCode& to) const;
  void take(const json& from, const char* key, std::map<std::string, std::string>& to) const;
  void take(const json& from, const char* key, std::vector<std::string>& to) const;
  void take(const json& from, const char* key, std::vector<std::uint32_t>& to) const;
  template <class T>
  void take(const json& from, const char* key, std::vector<T>& to) const {
    if (!from.is_array()) wrong(key, "a list");
    for (const json& element : from) {
      if (!element.is_object()) wrong(key, "a list of objects");
      FieldReader fields(element, message_ + ", " + key);
      describe(fields, to.emplace_back());
      fields.finish(0);
    }
  }

  const json& object_;
  std::string message_;
  std::size_t known_ = 0;
};

}  // namespace strait::base
