#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/store/file_descriptor.h"
#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

// One content of the store, kept from being pruned as long as this object lives, in whatever
// process. The bytes lie in data(), as a PartialFile that may have holes.
class PinnedContent {
 public:
  PinnedContent(std::filesystem::path folder, ChunkTable table, store::FileDescriptor in_use);

  std::filesystem::path data() const { return folder_ / "data"; }
  const ChunkTable& table() const { return table_; }

  // The right to write, for one process of the host; the others wait, since it writes what they
  // lack. It ends with the process. False: somebody else has it.
  bool try_to_write();
  void end_writing() { writing_ = store::FileDescriptor(); }

 private:
  std::filesystem::path folder_;
  ChunkTable table_;
  store::FileDescriptor in_use_;
  store::FileDescriptor writing_;
};

// What this host was sent, by content: `<directory>/<id>/`. Any number of processes use it at once
// and may die at any time. What nobody holds is removed, longest unused first, beyond the limit.
class ContentStore {
 public:
  static constexpr std::uint64_t kUsualLimit = std::uint64_t{64} << 30;

  explicit ContentStore(std::filesystem::path directory, std::uint64_t limit = kUsualLimit);

  PinnedContent hold(const ChunkTable& table);
  std::optional<PinnedContent> find(const std::string& id);  // only what is there

  // Makes place for so many bytes to come: below the limit, and on the disk as far as it can.
  void prune(std::uint64_t coming = 0);

  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
  std::uint64_t limit_;
};

}  // namespace strait::transfer
