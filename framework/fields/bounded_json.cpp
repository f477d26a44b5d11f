#include "framework/fields/bounded_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace strait::fields {
namespace {

using Json = nlohmann::json;

// Builds the value from the parser's events and checks each before anything is stored. The
// library's filter callback would need fewer lines, but takes quadratic time in the size of an
// object.
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override {
    measure(value);
    return add(std::move(value));
  }
  bool binary(binary_t& /*value*/) override { throw JsonError("it holds binary data"); }

  bool start_object(std::size_t /*elements*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    count();
    measure(value);
    // Two parsers could read a repeated key differently, so it is refused.
    if (open_.back()->contains(value)) {
      throw JsonError(fmt::format("the key {} appears twice", Json(value).dump()));
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    std::string words = plain_json_reason(error.what());
    const std::size_t start = words.find("syntax error");  // after the library's own position
    if (start != std::string::npos) words.erase(0, start);
    throw JsonError(fmt::format("column {}: {}", position, words));
  }

 private:
  // Stores the value and returns where. An open list or object keeps its address, because its
  // parent does not grow meanwhile.
  Json& place(Json value) {
    count();
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return (*open_.back())[key_] = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == limits_.depth) {
      throw JsonError(fmt::format("lists and objects are nested deeper than {}", limits_.depth));
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  void count() {
    if (++values_ > limits_.values) {
      throw JsonError(fmt::format("it holds more than {} values", limits_.values));
    }
  }
  void measure(const std::string& value) const {
    if (value.size() > limits_.string_bytes) {
      throw JsonError(fmt::format("a string is longer than {} bytes", limits_.string_bytes));
    }
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;  // from the root to the innermost open one
  std::string key_;
  std::size_t values_ = 0;
};

}  // namespace

std::string plain_json_reason(const std::string& words) {
  constexpr std::size_t kLongest = 200;
  const std::size_t prefix = words.starts_with("[json.") ? words.find("] ") : std::string::npos;
  std::string reason = prefix == std::string::npos ? words : words.substr(prefix + 2);
  if (reason.size() > kLongest) reason = reason.substr(0, kLongest) + "…";
  return reason;
}

Json parse_bounded_json(std::string_view text, const JsonLimits& limits) {
  JsonBuilder builder(limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace strait::fields
