#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/net/frame_memory.h"
#include "launcher/transfer/content_store.h"
#include "launcher/transfer/chunk_set.h"

namespace strait::transfer {

// What this process can give to others: files of its host and what it has fetched, by content. A
// chunk is proved before it leaves, so that a file which was changed or removed since only means
// that it is not here any more. One thread.
class ChunkSource {
 public:
  struct Offer {
    ChunkTable table;
    std::filesystem::path path;
    ChunkSet chunks;
    std::shared_ptr<const PinnedContent> held;  // of the store: stays as long as it is offered
  };

  void put(Offer offer);  // adds to what is offered of the same content
  void add(const std::string& id, std::uint32_t chunk);
  const Offer* find(const std::string& id) const;  // null: nothing of it

  // The frame that carries the chunk; nothing where it is not here (any more).
  std::optional<net::Frame> take(const std::string& id, std::uint32_t chunk);

  // Lets go of what is not there any more.
  void sweep();

 private:
  std::map<std::string, Offer> offers_;
};

}  // namespace strait::transfer
