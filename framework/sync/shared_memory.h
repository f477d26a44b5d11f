#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/file_descriptor.h"

namespace strait::sync {

// Where another process of the host finds memory, and what is at its begin then.
struct SharedMemoryKey {
  int process = 0;
  int descriptor = 0;
  std::uint64_t token = 0;

  std::string text() const;
  // std::nullopt: the text is no key.
  static std::optional<SharedMemoryKey> parse(const std::string& text);
};

// Memory that another process of this host and user can open by its key. It goes with the last
// process that has it open.
class SharedMemory {
 public:
  // std::system_error if there is none.
  explicit SharedMemory(std::size_t bytes);
  // net::LinkError (refused) with the replica whose memory cannot be opened, or is not that large.
  SharedMemory(SharedMemoryKey key, std::size_t bytes, std::uint32_t replica);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  SharedMemoryKey key() const;
  std::byte* begin() const { return begin_; }

 private:
  void map();

  std::uint64_t& token() const;

  FileDescriptor descriptor_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace strait::sync
