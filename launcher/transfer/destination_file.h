#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "launcher/transfer/content_store.h"
#include "launcher/transfer/partial_file.h"

namespace strait::transfer {

// What is to be fetched, and as what it is to lie here.
struct FetchRequest {
  enum class As {
    content,  // in the store; `path` becomes a link to it, and the content may have holes
    file,     // a file of its own at `path`, whole
  };
  ChunkTable table;
  ChunkSet chunks;  // of As::file all
  std::filesystem::path path;
  As as = As::content;
};

// Where the chunks of one fetch go. Opening and finishing may read or write for long.
class DestinationFile {
 public:
  // Null: another process of this host is fetching the same; try again. StoreError: no room, …
  // `local`: a file of this host that has some of it; empty: none is known.
  static std::unique_ptr<DestinationFile> open(ContentStore& store, const FetchRequest& order,
                                       const std::filesystem::path& local);

  PartialFile& file() { return *file_; }
  std::shared_ptr<const PinnedContent> held() const { return held_; }  // null: not in the store

  void finish();  // all wanted is here: `path` names it now
  void leave();   // what is here is kept for the next one, in this process or another

 private:
  void copy_from(const std::filesystem::path& local, const ChunkSet& lacking);

  DestinationFile(std::filesystem::path path, std::shared_ptr<PinnedContent> held);

  std::filesystem::path path_;
  std::shared_ptr<PinnedContent> held_;
  std::optional<PartialFile> file_;
};

// Makes `link` name `target`, whatever it named before, at once. StoreError.
void place_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace strait::transfer
