#pragma once

#include <memory>

#include "framework/file_descriptor.h"
#include "launcher/hosts/chunk_table.h"
#include "launcher/hosts/content_store.h"

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

// What to fetch, and where to put it.
struct FetchRequest {
  enum class As {
    content,  // in the store; `path` becomes a symbolic link to it, and the content may have holes
    file,     // a complete file of its own at `path`
  };
  ChunkTable table;
  ChunkSet chunks;  // all of them for As::file
  std::filesystem::path path;
  As as = As::content;
};

// The file into which one fetch writes its chunks. open() and finish() may read or write for long.
class DestinationFile {
 public:
  // Null: another process of this host fetches the same content; try again. StoreError: no room, …
  // `local`: a file of this host that has some of the chunks; empty: none is known.
  static std::unique_ptr<DestinationFile> open(ContentStore& store, const FetchRequest& request,
                                               const std::filesystem::path& local);

  PartialFile& file() { return *file_; }
  std::shared_ptr<const PinnedContent> content() const { return content_; }  // of As::content

  // All requested chunks are present: makes `path` name them.
  void finish();
  // Keeps the chunks that are present for the next fetch, in this process or another.
  void abandon();

 private:
  void copy_from(const std::filesystem::path& local, const ChunkSet& lacking);

  DestinationFile(const FetchRequest& request, std::shared_ptr<PinnedContent> content);

  std::filesystem::path path_;
  std::shared_ptr<PinnedContent> content_;
  std::optional<PartialFile> file_;
};

// Atomically makes `link` a symbolic link to `target`, replacing what was there. StoreError.
void place_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace strait::transfer
