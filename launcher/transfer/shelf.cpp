#include "launcher/transfer/shelf.h"

#include <span>
#include <utility>

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/transfer/ship_message.h"

namespace strait::transfer {

void Shelf::put(Offer offer) {
  const std::string id = offer.table.id();
  const auto found = offers_.find(id);
  // Of two places the one that has more; what is known of one that grows is never forgotten.
  if (found != offers_.end() && !offer.pieces.contains(found->second.pieces)) return;
  offers_.insert_or_assign(id, std::move(offer));
}

void Shelf::add(const std::string& id, std::uint32_t piece) {
  const auto found = offers_.find(id);
  if (found != offers_.end() && piece < found->second.pieces.size()) {
    found->second.pieces.insert(piece);
  }
}

const Shelf::Offer* Shelf::find(const std::string& id) const {
  const auto found = offers_.find(id);
  return found == offers_.end() ? nullptr : &found->second;
}

std::optional<net::Frame> Shelf::take(const std::string& id, std::uint32_t piece) {
  const auto found = offers_.find(id);
  if (found == offers_.end() || !found->second.pieces.contains(piece)) return std::nullopt;
  Offer& offer = found->second;
  try {
    std::span<std::byte> content;
    net::Frame frame = ship::piece_frame(id, piece, offer.table.bytes(piece), content);
    store::InputFile(offer.path).read(offer.table.begin(piece), content);
    if (offer.table.proves(piece, content)) return frame;
  } catch (const store::StoreError&) {
    // Whoever asked is told that it is not here, and asks somebody else.
  }
  offer.pieces.erase(piece);
  return std::nullopt;
}

void Shelf::sweep() {
  std::erase_if(offers_, [](const auto& entry) {
    std::error_code ignored;
    return !std::filesystem::exists(entry.second.path, ignored);
  });
}

}  // namespace strait::transfer
