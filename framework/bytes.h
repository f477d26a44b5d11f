#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

// The one way to write and read fixed binary layouts: numbers are little-endian and without
// padding, a text is its length (u32) and its bytes. Each room describes its layouts and turns a
// short input into its own error.
namespace strait {

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory; a big-endian host has to swap them here");

// Numbers, enumerations and structs of them without padding.
template <class Value>
concept PlainBytes = std::is_trivially_copyable_v<Value> &&
    (std::has_unique_object_representations_v<Value> || std::is_floating_point_v<Value>);

// Appends to any vector of bytes, whatever its allocator.
template <class Bytes, PlainBytes Value>
void append_value(Bytes& bytes, const Value& value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class Bytes>
void append_bytes(Bytes& bytes, std::span<const std::byte> more) {
  const std::size_t at = bytes.size();
  bytes.resize(at + more.size());
  // Not insert(), which constructs every byte where the vector has an allocator of its own, and not
  // std::ranges::copy, which GCC 12 compiles to a loop over bytes where the source is const.
  std::copy(more.begin(), more.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

template <class Bytes>
void append_text(Bytes& bytes, std::string_view text) {
  append_value(bytes, static_cast<std::uint32_t>(text.size()));
  append_bytes(bytes, std::as_bytes(std::span(text)));
}

// Fills existing memory. Writing past its end is a broken invariant of the caller.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> bytes) : rest_(bytes) {}

  template <PlainBytes Value>
  void value(const Value& value) {
    std::memcpy(rest_.first(sizeof value).data(), &value, sizeof value);
    rest_ = rest_.subspan(sizeof value);
  }

  std::size_t left() const { return rest_.size(); }

 private:
  std::span<std::byte> rest_;
};

// Reads values one by one. After the first one that does not fit, every value reads as zero or
// empty and failed() is true. So a caller may check once for many values.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <PlainBytes Value>
  Value value() {
    Value read{};
    const std::span<const std::byte> from = bytes(sizeof read);
    if (!failed_) std::memcpy(&read, from.data(), sizeof read);
    return read;
  }

  std::span<const std::byte> bytes(std::size_t count) {
    failed_ = failed_ || count > rest_.size();
    if (failed_) return {};
    const std::span<const std::byte> taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  // Allocates only for bytes that exist, whatever the length says.
  std::string text() {
    const std::span<const std::byte> from = bytes(value<std::uint32_t>());
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }

  bool failed() const { return failed_; }
  // Everything was read, and nothing is left over.
  bool complete() const { return !failed_ && rest_.empty(); }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace strait
