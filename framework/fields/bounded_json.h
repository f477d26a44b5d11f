#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include "framework/json_depth.h"

namespace strait::fields {

struct JsonLimits {
  std::size_t depth = kMostJsonDepth;
  std::size_t string_bytes = 1 << 20;
  // numbers, strings, lists, objects and keys, which are what takes memory
  std::size_t values = 1 << 20;
};

// What is wrong with a text. The caller adds the file's name in front.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The text of a nlohmann exception for use in a sentence: without its prefix, and cut, because it
// quotes the input.
std::string plain_json_reason(const std::string& words);

// Parses untrusted text: one JSON value within the limits, no repeated key in an object, valid
// UTF-8. Throws JsonError that names the column (byte of the text, from 1).
nlohmann::json parse_bounded_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace strait::fields
