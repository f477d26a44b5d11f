#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/packer.h"
#include "framework/data/record.h"

namespace strait::data {

// The tokenizer that needs no file: byte b is token b, and one further token ends a record.
struct ByteTokenizer {
  static constexpr std::int32_t kEnd = 256;

  static std::vector<std::int32_t> encode(std::string_view text);
  // End tokens and unknown tokens are skipped.
  static std::string decode(std::span<const std::int32_t> tokens);

  // The record's tokens and which of them are targets. Its end is a target. Only the last part of a
  // text has an end.
  static Document document(const Record& record);
};

}  // namespace strait::data
