#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "framework/file_descriptor.h"
#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

// A file that is written chunk by chunk, in any order. It has its full size from the start; missing
// chunks are holes. A second file, `path`.have (the note), lists the chunks that are present. It is
// valid only while the file's stamp shows that nothing was written since; otherwise (after a crash
// or an edit) every chunk is verified by its hash again. So no wrong chunk ever counts, and no
// right one is fetched twice. One thread; one process at a time may write.
class PartialFile {
 public:
  // StoreError: the disk is full or fails.
  PartialFile(std::filesystem::path path, ChunkTable table);

  const std::filesystem::path& path() const { return path_; }
  const ChunkTable& table() const { return table_; }
  const ChunkSet& chunks() const { return present_; }

  // False: the hash does not match; nothing was changed.
  bool write(std::uint32_t chunk, std::span<const std::byte> content);
  // Reads without verifying.
  void read(std::uint32_t chunk, std::span<std::byte> content) const;

  // Makes the data durable first, then writes the note.
  void save();
  // Moves the complete file to this name, durably, and removes the note. The object is not usable
  // afterwards.
  void finish(const std::filesystem::path& name);

 private:
  std::filesystem::path note() const { return path_.string() + ".have"; }
  bool read_note();
  void verify_all();

  std::filesystem::path path_;
  ChunkTable table_;
  ChunkSet present_;
  FileDescriptor descriptor_;
};

// StoreError (storage_full): the disk of this directory has fewer bytes free. `what` names the file
// in the message.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes,
                  const std::string& what);

}  // namespace strait::transfer
