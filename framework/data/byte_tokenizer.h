#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/packer.h"
#include "framework/data/record.h"

namespace strait::data {

// The tokenizer that needs no file: byte b is token b, and one token more ends a record.
struct ByteTokenizer {
  static constexpr std::int32_t kEnd = 256;

  static std::vector<std::int32_t> encode(std::string_view text);
  // Ends and unknown tokens are left out.
  static std::string decode(std::span<const std::int32_t> tokens);

  // The record's tokens and which of them are targets. Its end is one; a part of a text has none
  // before the last.
  static Document document(const Record& record);
};

}  // namespace strait::data
