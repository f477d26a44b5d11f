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

// The chunks that this process can send to others, by content: of files of its host, of fetched
// contents, and of contents in memory, which come and go without files of the same content (a
// checkpoint of that step on disk). A chunk is verified before it is sent, so that a file that was
// modified or removed since is only a missing chunk. One thread.
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
  void hold(Offer in_memory);  // replaces that of an equal content in memory
  void release(const std::string& id) { held_.erase(id); }
  const Offer* find(const std::string& id) const;  // in memory first; null: not offered

  // The message that carries the chunk; nothing where it is missing (by now).
  std::optional<net::Frame> read(const std::string& id, std::uint32_t chunk);

  // Withdraws files that do not exist any more.
  void remove_deleted();

 private:
  static std::optional<net::Frame> read(Offer& offer, const std::string& id, std::uint32_t chunk);

  std::map<std::string, Offer> held_;
  std::map<std::string, Offer> offers_;  // of files
};

}  // namespace strait::transfer
