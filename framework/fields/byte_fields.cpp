#include "framework/fields/byte_fields.h"

namespace strait::fields {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
  return text;
}

}  // namespace

void BytesReader::operator()(const char* key, bool& flag) {
  std::uint8_t byte = 0;
  (*this)(key, byte);
  if (byte > 1) refuse(key, "is neither 0 nor 1");
  flag = byte == 1;
}

void BytesReader::operator()(const char* key, const AtMost<std::string>& text) {
  std::uint32_t length = 0;
  (*this)(key, length);
  if (length > text.most) refuse(key, "is longer than its limit");
  text.value = text_of(take(key, length));
}

void BytesReader::operator()(const char* key, const Exactly<std::string>& text) {
  text.value = text_of(take(key, text.size));
}

void BytesReader::operator()(const char* key, const Rest<std::vector<std::byte>>& bytes) {
  const std::size_t count = reader_.rest().size();
  if (count == 0 || count > bytes.most) refuse(key, "is empty or too long");
  const std::span<const std::byte> taken = take(key, count);
  bytes.value.assign(taken.begin(), taken.end());
}

void BytesReader::finish() const {
  if (!reader_.complete()) throw MessageError(message_ + ": bytes after the last field");
}

std::span<const std::byte> BytesReader::take(const char* key, std::size_t count) {
  const std::span<const std::byte> taken = reader_.bytes(count);
  if (reader_.failed()) refuse(key, "is truncated");
  return taken;
}

void BytesReader::refuse(const char* key, const char* fault) const {
  throw MessageError(message_ + ": field " + key + " " + fault);
}

}  // namespace strait::fields
