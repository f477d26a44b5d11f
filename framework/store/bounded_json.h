#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "framework/json_depth.h"

namespace strait::store {

struct JsonLimits {
  std::size_t depth = kMostJsonDepth;
  std::size_t string_bytes = 1 << 20;
  std::size_t values = 1 << 20;  // numbers, strings, lists, objects, keys: what memory is spent on
};

// What is wrong with a text, without its file's name: the caller knows that and puts it in front.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The words of nlohmann's exceptions for a sentence: without their prefix, and cut, as they quote
// what was read.
std::string plain_json_reason(const std::string& words);

// Parses text from any source: one JSON value within the limits, no key twice in an
// object, valid UTF-8. Throws JsonError that names the column (byte of the text, from 1).
nlohmann::json parse_bounded_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace strait::store
