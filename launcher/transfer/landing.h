#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "launcher/transfer/content_store.h"
#include "launcher/transfer/piece_file.h"

namespace strait::transfer {

// What is to be fetched, and as what it is to lie here.
struct FetchOrder {
  enum class As {
    content,  // in the store; `path` becomes a link to it, and the content may have holes
    file,     // a file of its own at `path`, whole
  };
  FileTable table;
  PieceSet pieces;  // of As::file all
  std::filesystem::path path;
  As as = As::content;
};

// Where the pieces of one fetch go. Opening and finishing may read or write for long.
class Landing {
 public:
  // Null: another process of this host is fetching the same; try again. StoreError: no room, …
  // `local`: a file of this host that has some of it; empty: none is known.
  static std::unique_ptr<Landing> open(ContentStore& store, const FetchOrder& order,
                                       const std::filesystem::path& local);

  PieceFile& file() { return *file_; }
  std::shared_ptr<const HeldContent> held() const { return held_; }  // null: not in the store

  void finish();  // all wanted is here: `path` names it now
  void leave();   // what is here is kept for the next one, in this process or another

 private:
  void copy_from(const std::filesystem::path& local, const PieceSet& lacking);

  Landing(std::filesystem::path path, std::shared_ptr<HeldContent> held);

  std::filesystem::path path_;
  std::shared_ptr<HeldContent> held_;
  std::optional<PieceFile> file_;
};

// Makes `link` name `target`, whatever it named before, at once. StoreError.
void place_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace strait::transfer
