#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/net/frame_memory.h"
#include "launcher/base/errors.h"
#include "launcher/base/fields.h"

// The binary back end of fields.h: the described fields one after the other, without names, numbers
// little-endian. A text or a list begins with its count (u32), a flag and an exit code are one
// byte.
namespace strait::base {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

class BytesWriter {
 public:
  void operator()(const char* /*key*/, const auto& value) { write(value); }

  net::Frame take() { return std::move(frame_); }

 private:
  template <std::integral T>
  void write(const T& value) {
    append(&value, sizeof value);
  }
  void write(ExitCode code) { write(static_cast<std::uint8_t>(number(code))); }
  template <class T>
  void write(const AtMost<T>& text) {
    const std::size_t size = std::min(text.value.size(), text.most);
    write(static_cast<std::uint32_t>(size));
    append(text.value.data(), size);
  }
  template <class T>
  void write(const Exactly<T>& text) {
    append(text.value.data(), text.size);
  }
  template <class T>
  void write(const Rest<T>& bytes) {
    append(bytes.value.data(), bytes.value.size());
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write(static_cast<std::uint32_t>(list.size()));
    for (const T& element : list) write(element);
  }
  void write(const auto& described) { describe(*this, described); }

  void append(const void* from, std::size_t count) {
    if (count == 0) return;
    const std::size_t end = frame_.size();
    frame_.resize(end + count);
    std::memcpy(frame_.data() + end, from, count);
  }

  net::Frame frame_;
};

// Throws MessageError. Memory grows only with the bytes that are there, whatever a count says.
class BytesReader {
 public:
  // `message` names the whole in errors: "transfer message".
  BytesReader(std::span<const std::byte> bytes, const char* message)
      : left_(bytes), message_(message) {}

  template <class T>
  void operator()(const char* key, T&& value) {
    key_ = key;
    read(value);
  }
  void finish() const {
    if (!left_.empty()) refuse("bytes after the last field");
  }

 private:
  template <std::integral T>
  void read(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  void read(bool& flag) {
    std::uint8_t byte = 0;
    read(byte);
    if (byte > 1) refuse("a flag is neither 0 nor 1");
    flag = byte == 1;
  }
  void read(ExitCode& code) {
    std::uint8_t byte = 0;
    read(byte);
    code = ExitCode{byte};
  }
  void read(AtMost<std::string>& text) {
    std::uint32_t size = 0;
    read(size);
    if (size > text.most) refuse("a text is longer than its limit");
    assign(text.value, size);
  }
  void read(Exactly<std::string>& text) { assign(text.value, text.size); }
  void read(Rest<std::vector<std::byte>>& bytes) {
    if (left_.empty() || left_.size() > bytes.most) refuse("content is empty or too long");
    bytes.value.assign(left_.begin(), left_.end());
    left_ = {};
  }
  template <class T>
  void read(std::vector<T>& list) {
    std::uint32_t count = 0;
    read(count);
    list.clear();
    for (; count > 0; --count) read(list.emplace_back());
  }
  void read(auto& described) { describe(*this, described); }

  void assign(std::string& text, std::size_t size) {
    const std::span<const std::byte> bytes = take(size);
    text.assign(size, '\0');
    if (size > 0) std::memcpy(text.data(), bytes.data(), size);
  }
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) refuse("truncated");
    const std::span<const std::byte> taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  [[noreturn]] void refuse(const char* cause) const {
    throw MessageError(std::string(message_) + ": " + cause + " (at " + key_ + ")");
  }

  std::span<const std::byte> left_;
  const char* message_;
  const char* key_ = "the start";
};

}  // namespace strait::base
