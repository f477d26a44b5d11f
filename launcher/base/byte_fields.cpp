#include "launcher/base/byte_fields.h"

namespace strait::base {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
  return text;
}

}  // namespace

void BytesWriter::append(const void* from, std::size_t count) {
  if (count == 0) return;
  const std::size_t at = frame_.size();
  frame_.resize(at + count);
  std::memcpy(frame_.data() + at, from, count);
}

void BytesReader::operator()(const char* key, bool& flag) {
  std::uint8_t byte = 0;
  (*this)(key, byte);
  if (byte > 1) refuse(key, "is neither 0 nor 1");
  flag = byte == 1;
}

void BytesReader::operator()(const char* key, ExitCode& code) {
  std::uint8_t byte = 0;
  (*this)(key, byte);
  code = ExitCode{byte};
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
  if (left_.empty() || left_.size() > bytes.most) refuse(key, "is empty or too long");
  bytes.value.assign(left_.begin(), left_.end());
  left_ = {};
}

void BytesReader::finish() const {
  if (!left_.empty()) throw MessageError(message_ + ": bytes after the last field");
}

std::span<const std::byte> BytesReader::take(const char* key, std::size_t count) {
  if (count > left_.size()) refuse(key, "is truncated");
  const std::span<const std::byte> taken = left_.first(count);
  left_ = left_.subspan(count);
  return taken;
}

void BytesReader::refuse(const char* key, const char* fault) const {
  throw MessageError(message_ + ": field " + key + " " + fault);
}

}  // namespace strait::base
