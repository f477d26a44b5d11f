#include "launcher/hosts/transfer_peers.h"

#include "framework/fields/byte_fields.h"
#include "launcher/base/launcher_links.h"
#include "launcher/hosts/chunk_table.h"

namespace strait::transfer::message {

namespace {

auto content_id(auto& id) { return fields::exactly(id, ChunkTable::kDigits); }

}  // namespace

void describe(auto& fields, fields::Is<Get> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
}
void describe(auto& fields, fields::Is<Chunk> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
  fields("content", fields::rest(m.content, ChunkTable::kChunkBytes));
}
void describe(auto& fields, fields::Is<Missing> auto& m) {
  fields("id", content_id(m.id)), fields("chunk", m.chunk);
}
void describe(auto& /*fields*/, fields::Is<Wait> auto& /*m*/) {}

namespace {

template <std::size_t I = 0>
Message read_kind(std::uint8_t kind, fields::BytesReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw base::MessageError("transfer message: unknown kind");
  } else {
    if (kind != I) return read_kind<I + 1>(kind, reader);
    std::variant_alternative_t<I, Message> message;
    describe(reader, message);
    return message;
  }
}

void check(const auto& message) {
  if constexpr (requires { message.id; }) {
    if (!is_content_id(message.id)) {
      throw base::MessageError("transfer message: a content id is not a hash");
    }
  }
}

}  // namespace

net::Frame format(const Message& message) {
  net::Frame frame;
  fields::BytesWriter writer(frame);
  writer("kind", static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& one) { describe(writer, one); }, message);
  return frame;
}

net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content) {
  net::Frame frame = format(Chunk{id, chunk, {}});
  const std::size_t header = frame.size();
  frame.resize(header + bytes);
  content = std::span<std::byte>(frame).subspan(header);
  return frame;
}

Message parse_message(std::span<const std::byte> frame) {
  fields::BytesReader reader(frame, "transfer message");
  std::uint8_t kind = 0;
  reader("kind", kind);
  Message message = read_kind(kind, reader);
  reader.finish();
  std::visit([](const auto& one) { check(one); }, message);
  return message;
}

}  // namespace strait::transfer::message

namespace strait::transfer {

namespace {

net::LinkError shutting_down() {
  return {net::LinkError::Kind::aborted, "the transfer agent is shutting down"};
}

}  // namespace

net::LinkOptions transfer_link(const net::ProcessName& listens, const net::ProcessName& dials,
                               const net::ProcessName& peer, const std::string& peer_key,
                               std::chrono::seconds hold) {
  const std::string name = listens == net::ProcessName::coordinator()
                               ? base::kTransferService
                               : fmt::format("{} {}", base::kTransferService, listens.text());
  net::LinkOptions options = base::service_link(name, dials, peer, peer_key, hold);
  // Neither end waits for a host that cannot reach the other one.
  if (listens.is_host_agent()) options.connect_limit = net::LinkOptions{}.connect_limit;
  // Small link chunks, so that a slow path shows progress within the heartbeat limit.
  options.fragment_bytes = std::uint64_t{128} << 10;
  // On the hosts, stages send activations while checkpoints are downloaded. The launcher has
  // nothing more urgent to send.
  const bool at_launcher = listens == net::ProcessName::coordinator() && peer == dials;
  options.priority = at_launcher ? net::Priority::foreground : net::Priority::background;
  return options;
}

void TransferPeers::close() {
  closing_ = true;
  const net::LinkError cause = shutting_down();
  for (std::size_t peer = 0; peer < count(); ++peer) at(peer).link->abort(cause);
  inbox_.close();
  if (receiver_.joinable()) receiver_.join();
}

void TransferPeers::add(const net::ProcessName& name, const std::string& host,
                        std::unique_ptr<net::Link> link, const std::string& key) {
  if (const auto former = find(name)) drop(*former, "replaced by a new connection");
  const MutexLock lock(mutex_);
  const std::size_t number = peers_.size();
  Peer& peer = peers_.emplace_back();
  peer.name = name;
  peer.host = host;
  peer.key = key;
  peer.link = std::move(link);
  peer.added = std::chrono::steady_clock::now();
  inbox_.add(number, *peer.link);
  // close() may not see this peer any more, and waits until all links have ended.
  if (closing_) peer.link->abort(shutting_down());
}

void TransferPeers::drop(std::size_t number, const std::string& cause) {
  Peer& peer = at(number);
  if (!peer.connected.exchange(false)) return;
  peer.link->abort(net::LinkError(net::LinkError::Kind::aborted, cause));
  if (!closing_) handlers_.disconnected(number, fmt::format("{}: {}", peer.host, cause));
}

bool TransferPeers::send_frame(std::size_t number, net::Frame frame) {
  Peer& peer = at(number);
  if (!peer.connected) return false;
  try {
    const MutexLock lock(peer.sending);
    peer.link->send(std::move(frame));
  } catch (const net::LinkError&) {
    // The inbox gets the same error, and the receiving thread reports the disconnection.
  }
  return true;
}

std::optional<std::size_t> TransferPeers::find(const net::ProcessName& name) const {
  const MutexLock lock(mutex_);
  for (std::size_t number = 0; number < peers_.size(); ++number) {
    if (peers_[number].connected && peers_[number].name == name) return number;
  }
  return std::nullopt;
}

TransferPeers::Peer& TransferPeers::at(std::size_t peer) const {
  const MutexLock lock(mutex_);
  return peers_.at(peer);
}

std::size_t TransferPeers::count() const {
  const MutexLock lock(mutex_);
  return peers_.size();
}

void TransferPeers::receive_all() {
  while (const auto arrival = inbox_.take_until(net::Inbox::Time::max())) {
    const std::size_t number = arrival->link;
    try {
      message::Message received = message::parse_message(arrival->frame());
      if (at(number).connected) handlers_.received(number, std::move(received));
    } catch (const net::LinkError& error) {
      drop(number, error.what());
    } catch (const base::MessageError& error) {
      drop(number, error.what());
    }
  }
}

}  // namespace strait::transfer
