#include "launcher/transfer/chunk_source.h"

#include <span>
#include <utility>

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/transfer/transfer_message.h"

namespace strait::transfer {

void ChunkSource::offer(Offer offer) {
  const std::string id = offer.table.id();
  const auto found = offers_.find(id);
  // An offer that grows while its content is fetched must not be replaced by an older state.
  if (found != offers_.end() && !offer.chunks.contains(found->second.chunks)) return;
  offers_.insert_or_assign(id, std::move(offer));
}

void ChunkSource::add(const std::string& id, std::uint32_t chunk) {
  const auto found = offers_.find(id);
  if (found != offers_.end() && chunk < found->second.chunks.size()) {
    found->second.chunks.insert(chunk);
  }
}

const ChunkSource::Offer* ChunkSource::find(const std::string& id) const {
  const auto found = offers_.find(id);
  return found == offers_.end() ? nullptr : &found->second;
}

std::optional<net::Frame> ChunkSource::read(const std::string& id, std::uint32_t chunk) {
  const auto found = offers_.find(id);
  if (found == offers_.end() || !found->second.chunks.contains(chunk)) return std::nullopt;
  Offer& offer = found->second;
  try {
    std::span<std::byte> content;
    net::Frame frame = message::chunk_frame(id, chunk, offer.table.bytes(chunk), content);
    store::InputFile(offer.path).read(offer.table.begin(chunk), content);
    if (offer.table.matches(chunk, content)) return frame;
  } catch (const store::StoreError&) {
    // The peer gets Missing and requests the chunk from another source.
  }
  offer.chunks.erase(chunk);
  return std::nullopt;
}

void ChunkSource::remove_deleted() {
  std::erase_if(offers_, [](const auto& entry) {
    std::error_code ignored;
    return !std::filesystem::exists(entry.second.path, ignored);
  });
}

}  // namespace strait::transfer
