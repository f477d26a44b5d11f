#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/net/frame_memory.h"
#include "launcher/transfer/content_store.h"

namespace strait::transfer {

// The chunks that this process can send to others, by content: of files of its host and of fetched
// contents. A chunk is verified before it is sent, so that a file that was modified or removed
// since is only a missing chunk. One thread.
class ChunkSource {
 public:
  struct Offer {
    ChunkTable table;
    std::filesystem::path path;
    ChunkSet chunks;
    std::shared_ptr<const PinnedContent> content;  // pinned while it is offered; null for files
  };

  void offer(Offer offer);  // replaces an offer of the same content that has fewer chunks
  void add(const std::string& id, std::uint32_t chunk);
  const Offer* find(const std::string& id) const;  // null: not offered

  // The message that carries the chunk; nothing where it is missing (by now).
  std::optional<net::Frame> read(const std::string& id, std::uint32_t chunk);

  void remove(const std::string& id) { offers_.erase(id); }
  // Withdraws files that do not exist any more.
  void remove_deleted();

 private:
  std::map<std::string, Offer> offers_;
};

}  // namespace strait::transfer
