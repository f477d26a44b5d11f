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

std::optional<std::size_t> ServeQueue::sent_to_another(const Request& request) const {
  if (request.force) return std::nullopt;
  const auto content = sent_to_.find(request.id);
  if (content == sent_to_.end()) return std::nullopt;
  const auto sent = content->second.find(request.chunk);
  if (sent == content->second.end() || sent->second == request.peer) return std::nullopt;
  return sent->second;
}

bool ServeQueue::push(const Request& request) {
  const std::size_t peer = request.peer;
  if (peer >= normal_.size()) {
    normal_.resize(peer + 1);
    forced_.resize(peer + 1);
  }
  if (normal_[peer].size() + forced_[peer].size() >= kMostWaiting) return false;
  sent_to_[request.id][request.chunk] = peer;
  (request.force ? forced_ : normal_)[peer].push_back(request);
  ++waiting_;
  return true;
}

std::optional<ServeQueue::Request> ServeQueue::next_of(std::vector<std::deque<Request>>& queues) {
  for (std::size_t tried = 0; tried < queues.size(); ++tried) {
    turn_ = (turn_ + 1) % queues.size();
    std::deque<Request>& queue = queues[turn_];
    if (queue.empty()) continue;
    Request request = std::move(queue.front());
    queue.pop_front();
    --waiting_;
    return request;
  }
  return std::nullopt;
}

std::optional<ServeQueue::Request> ServeQueue::next() {
  if (auto request = next_of(normal_)) return request;
  return next_of(forced_);
}

std::map<std::size_t, std::string> ServeQueue::waiting() const {
  std::map<std::size_t, std::string> ids;
  for (const auto* queues : {&normal_, &forced_}) {
    for (std::size_t peer = 0; peer < queues->size(); ++peer) {
      const std::deque<Request>& queue = (*queues)[peer];
      if (!queue.empty()) ids.emplace(peer, queue.front().id);
    }
  }
  return ids;
}

void ServeQueue::remove_peer(std::size_t peer) {
  if (peer < normal_.size()) {
    waiting_ -= normal_[peer].size() + forced_[peer].size();
    normal_[peer].clear();
    forced_[peer].clear();
  }
  for (auto& [id, chunks] : sent_to_) {
    std::erase_if(chunks, [peer](const auto& sent) { return sent.second == peer; });
  }
}

}  // namespace strait::transfer
