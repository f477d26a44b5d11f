#include "framework/data/tokenizer.h"

#include "framework/store/store_error.h"

namespace strait::data {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < kEnd) text += static_cast<char>(token);
  }
  return text;
}

Document ByteTokenizer::document(const Record& record) {
  if (!record.needs_template.empty()) {
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "{}: it has {}, which byte tokens cannot render: they know text and "
                            "the roles system, developer, user, assistant and tool; take a "
                            "tokenizer with a chat template, a directory with tokenizer.json",
                            record.origin, record.needs_template);
  }
  Document document;
  document.origin = record.origin;
  document.whole = record.whole;
  for (const Piece& piece : record.pieces) {
    const std::vector<std::int32_t> tokens = encode(piece.text);
    document.tokens.insert(document.tokens.end(), tokens.begin(), tokens.end());
    document.is_target.insert(document.is_target.end(), tokens.size(), piece.is_target ? 1 : 0);
  }
  document.last = record.last;
  if (!record.last) return document;
  document.tokens.push_back(kEnd);
  document.is_target.push_back(1);
  return document;
}

}  // namespace strait::data
