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

void ChunkSource::hold(Offer in_memory) {
  const std::string id = in_memory.table.id();
  held_.insert_or_assign(id, std::move(in_memory));
}

const ChunkSource::Offer* ChunkSource::find(const std::string& id) const {
  for (const auto* offers : {&held_, &offers_}) {
    if (const auto found = offers->find(id); found != offers->end()) return &found->second;
  }
  return nullptr;
}

std::optional<net::Frame> ChunkSource::read(const std::string& id, std::uint32_t chunk) {
  for (auto* offers : {&held_, &offers_}) {
    const auto found = offers->find(id);
    if (found == offers->end()) continue;
    if (auto frame = read(found->second, id, chunk)) return frame;
  }
  return std::nullopt;
}

std::optional<net::Frame> ChunkSource::read(Offer& offer, const std::string& id,
                                            std::uint32_t chunk) {
  if (!offer.chunks.contains(chunk)) return std::nullopt;
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
