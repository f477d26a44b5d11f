#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "framework/store/file_descriptor.h"
#include "launcher/transfer/chunk_table.h"
#include "launcher/transfer/chunk_set.h"

namespace strait::transfer {

// A file that comes together from chunks, in any order: from the start on it has its full size, and
// what is not there yet is a hole. Beside it lies `path`.have, which says what is there; that note
// holds only as long as the file's stamp says that nothing was written since. Otherwise (a crash, a
// hand that changed it) every chunk is proved by its hash again, so that nothing wrong ever counts
// and nothing right is fetched twice. One thread, one writer at a time.
class PartialFile {
 public:
  // StoreError: no room for what is needed, a disk that fails.
  PartialFile(std::filesystem::path path, ChunkTable table);

  const std::filesystem::path& path() const { return path_; }
  const ChunkTable& table() const { return table_; }
  const ChunkSet& chunks() const { return present_; }

  // False: the bytes are not this chunk, and nothing was changed.
  bool write(std::uint32_t chunk, std::span<const std::byte> content);
  // The bytes as they are on disk, unproved.
  void read(std::uint32_t chunk, std::span<std::byte> content) const;

  // Makes what is there durable, and then the note. Often enough that a crash costs little reading.
  void settle();
  // A whole file under its own name; nothing else stays. This object is done with.
  void finish(const std::filesystem::path& name);

 private:
  std::filesystem::path note() const { return path_.string() + ".have"; }
  bool believe_note();
  void prove_all();

  std::filesystem::path path_;
  ChunkTable table_;
  ChunkSet present_;
  store::FileDescriptor descriptor_;
};

// StoreError (storage_full) where the disk of this directory has fewer bytes: how many are needed
// for what, and how many are free where.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes,
                  const std::string& what);

}  // namespace strait::transfer
