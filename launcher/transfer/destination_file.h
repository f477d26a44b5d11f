#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "launcher/transfer/content_store.h"
#include "launcher/transfer/partial_file.h"

namespace strait::transfer {

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
