#pragma once

#include <type_traits>
#include <vector>

#include "framework/bytes.h"
#include "framework/fields/fields.h"

// The byte back end of fields.h: fields in the order of their description, without keys. Numbers
// are little-endian and as wide as their type; flags take one byte. Texts and lists follow their
// length in four bytes. Reading is strict. A message that is too short or too long, a flag that is
// neither 0 nor 1, or a text or list beyond its limit is a MessageError.
namespace strait::fields {

// Appends to any vector of bytes.
template <class Bytes>
class BytesWriter {
 public:
  explicit BytesWriter(Bytes& bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const char* /*key*/, const T& value) { append_value(bytes_, value); }
  void operator()(const char* key, const bool& flag) { (*this)(key, std::uint8_t{flag}); }
  void operator()(const char* /*key*/, const std::string& text) { append_text(bytes_, text); }
  template <class T>
  void operator()(const char* key, const std::vector<T>& list) {
    (*this)(key, static_cast<std::uint32_t>(list.size()));
    for (const T& element : list) (*this)(key, element);
  }
  void operator()(const char* key, const AtMost<const std::string>& text) {
    (*this)(key, text.value.substr(0, text.most));
  }
  template <class T>
  void operator()(const char* key, const AtMost<const std::vector<T>>& list) {
    (*this)(key, list.value);
  }
  void operator()(const char* /*key*/, const Exactly<const std::string>& text) {
    append_bytes(bytes_, std::as_bytes(std::span(text.value)).first(text.size));
  }
  void operator()(const char* /*key*/, const Rest<const std::vector<std::byte>>& bytes) {
    append_bytes(bytes_, bytes.value);
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* key, const T& value) {
    if constexpr (HasListForm<T>) {
      std::apply([&](auto... member) { ((*this)(key, value.*member), ...); }, kListForm<T>);
    } else {
      describe(*this, value);
    }
  }

 private:
  Bytes& bytes_;
};

class BytesReader {
 public:
  // `message` names the bytes in errors: "transfer message".
  BytesReader(std::span<const std::byte> bytes, std::string message)
      : reader_(bytes), message_(std::move(message)) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const char* key, T& value) {
    value = reader_.value<T>();
    if (reader_.failed()) refuse(key, "is truncated");
  }
  void operator()(const char* key, bool& flag);
  void operator()(const char* key, std::string& text) {
    (*this)(key, at_most(text, reader_.rest().size()));
  }
  template <class T>
  void operator()(const char* key, std::vector<T>& list) {
    (*this)(key, at_most(list, reader_.rest().size()));
  }
  template <class T>
  void operator()(const char* key, const AtMost<std::vector<T>>& list) {
    std::uint32_t count = 0;
    (*this)(key, count);
    if (count > list.most) refuse(key, "is longer than its limit");
    // One by one: a wrong count allocates no more memory than the message has.
    for (; count > 0; --count) (*this)(key, list.value.emplace_back());
  }
  void operator()(const char* key, const AtMost<std::string>& text);
  void operator()(const char* key, const Exactly<std::string>& text);
  void operator()(const char* key, const Rest<std::vector<std::byte>>& bytes);
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* key, T& value) {
    if constexpr (HasListForm<T>) {
      std::apply([&](auto... member) { ((*this)(key, value.*member), ...); }, kListForm<T>);
    } else {
      describe(*this, value);
    }
  }

  void finish() const;

 private:
  std::span<const std::byte> take(const char* key, std::size_t count);
  [[noreturn]] void refuse(const char* key, const char* fault) const;

  ByteReader reader_;
  std::string message_;
};

// A whole struct, and back. `name` names it in errors.
template <class Bytes, class T>
Bytes to_bytes(const T& value) {
  Bytes bytes;
  BytesWriter fields(bytes);
  describe(fields, value);
  return bytes;
}
template <class T>
T from_bytes(std::span<const std::byte> bytes, std::string name) {
  T value;
  BytesReader fields(bytes, std::move(name));
  describe(fields, value);
  fields.finish();
  return value;
}

}  // namespace strait::fields
