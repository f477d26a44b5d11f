#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/file_descriptor.h"

namespace strait::net {

// Where another process of the host finds memory, and what is at its begin then.
struct SharedMemoryKey {
  std::int32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t token = 0;

  std::string text() const;
  // std::nullopt: the text is no key.
  static std::optional<SharedMemoryKey> parse(const std::string& text);
};

// Memory that another process of this host and user can open by its key. Its first bytes are the
// token of the key. Its size is fixed: no process can take bytes away that another one reads. It
// goes with the last process that has it open.
class SharedMemory {
 public:
  enum class Access : std::uint8_t { read, write };

  // std::system_error if there is none.
  explicit SharedMemory(std::size_t bytes);
  // LinkError (refused) if it cannot be opened, is something else, or has another size. Whatever
  // the key says, nothing but such memory is opened.
  SharedMemory(SharedMemoryKey key, std::size_t bytes, Access access = Access::write);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  SharedMemoryKey key() const;
  // With Access::read a write ends the process.
  std::byte* begin() const { return begin_; }

 private:
  void map(int protection);
  std::uint64_t& token() const;

  FileDescriptor descriptor_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace strait::net
