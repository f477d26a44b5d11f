#include "framework/net/link_end.h"

#include <atomic>
#include <bit>
#include <memory>

#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

// After this time without a message the connection is asked whether part of a message has come.
constexpr std::chrono::milliseconds kAskConnectionAfter{500};

// The bytes of a large message, in a frame's memory, for as long as libzmq uses them.
struct LentBytes {
  Frame bytes;
  // Set after the last write and read before the bytes are freed. libzmq orders its threads in ways
  // that ThreadSanitizer does not see; this flag makes the order visible.
  std::atomic<bool> written = false;
};

void take_back(void* /*bytes*/, void* lent) {
  const std::unique_ptr<LentBytes> owned(static_cast<LentBytes*>(lent));
  static_cast<void>(owned->written.load(std::memory_order_acquire));
}

LentBytes* lend(zmq::message_t& message, std::size_t bytes) {
  auto lent = std::make_unique<LentBytes>();
  lent->bytes.resize(bytes);
  message.rebuild(lent->bytes.data(), bytes, take_back, lent.get());
  return lent.release();
}

void write(const LinkProtocol::Outgoing& outgoing, zmq::message_t& message) {
  const std::size_t size = kHeaderBytes + outgoing.payload.size();
  LentBytes* lent = nullptr;
  // Small messages are copied into ZeroMQ's own buffer; large ones lend a frame's memory, so that a
  // step allocates nothing.
  if (size < FrameMemory::kReusedBytes) {
    message.rebuild(size);
  } else {
    lent = lend(message, size);
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(message.data()), message.size());
  std::copy(outgoing.payload.begin(), outgoing.payload.end(), bytes.begin() + kHeaderBytes);
  // The check covers the payload, so the header is written last.
  seal(outgoing.header, bytes);
  if (lent != nullptr) lent->written.store(true, std::memory_order_release);
}

}  // namespace

LinkEnd::LinkEnd(const ProtocolOptions& options, std::function<void()> wake, Uplink& uplink)
    : priority_(options.link.priority),
      wake_(std::move(wake)),
      uplink_(uplink),
      protocol_(options, std::chrono::steady_clock::now()) {
  const bool in_memory = options.link.shared_memory && priority_ == Priority::foreground;
  // The pace of a background link is that of one queue. References to memory fit into one, too.
  if (in_memory || priority_ == Priority::background) limit_flows(1, 1);
  const MutexLock lock(mutex_);
  if (in_memory) share_memory();
}

void LinkEnd::share_memory() {
  try {
    memory_.emplace();
    protocol_.announce_memory(memory_->announcement());
  } catch (const std::system_error& error) {
    memory_problem_ = error.what();
  }
}

void LinkEnd::follow_peer_memory() {
  const auto announcement = protocol_.take_peer_memory();
  if (!announcement || !memory_) return;
  try {
    if (memory_->accept(*announcement)) protocol_.announce_memory(memory_->announcement());
  } catch (const std::runtime_error& error) {  // the peer's memory or this process's address space
    memory_problem_ = error.what();
  }
}

void LinkEnd::limit_flows(unsigned least, unsigned most) {
  const MutexLock lock(mutex_);
  flow_count_ = FlowCount(least, most);
  protocol_.want_flows(least, most);
}

LinkEnd::Flows LinkEnd::flows() const {
  const MutexLock lock(mutex_);
  return {protocol_.flows(), protocol_.used_flows(), protocol_.wanted_flows()};
}

void LinkEnd::throw_if_failed() {
  if (protocol_.error()) throw LinkError(*protocol_.error());
}

void LinkEnd::measure(Time now) {
  const SendWindow& window = protocol_.window();
  rate_.update(now, window.pushed_bytes(), window.received_offset(), window.arrived());
  fragment_.update(now, window.cursor_offset(), window.received_offset());
  flow_count_.update(now, window.pushed_bytes(), window.received_offset(),
                     static_cast<unsigned>(std::popcount(protocol_.flows())));
  protocol_.want_flows(flow_count_.wanted(), flow_count_.most());
}

std::uint64_t LinkEnd::fragment_limit(Time now) {
  const SendWindow& window = protocol_.window();
  if (!window.has_fragment()) return 0;
  if (priority_ == Priority::background) return pace_.allowance(now, uplink_);
  if (sends_in_memory()) {
    memory_->confirm(window.attempt(), window.received_offset());
    return memory_->payload_limit(FragmentSize::part_of(window.next_frame_bytes()));
  }
  // Updated here as well, because confirmations may be missing for long.
  fragment_.update(now, window.cursor_offset(), window.received_offset());
  return std::min(fragment_.limit(rate_.bytes_per_second()),
                  FragmentSize::part_of(window.next_frame_bytes()));
}

void LinkEnd::note_fragment(Time now, std::uint64_t payload) {
  const std::uint64_t bytes = kHeaderBytes + payload;
  if (priority_ == Priority::foreground) {
    rate_.fragment_sent(now, protocol_.window().cursor_offset(), protocol_.window().has_fragment());
    if (!sends_in_memory()) uplink_.foreground_sent(bytes, rate_.back_to_back_rate());
  } else {
    pace_.sent(now, protocol_.window().cursor_offset(), bytes, uplink_);
  }
}

void LinkEnd::report_to_uplink() {
  using Load = Uplink::Load;
  Load load = Load::none;
  if (protocol_.connected() && !protocol_.window().all_received() && !sends_in_memory()) {
    load = protocol_.window().has_fragment() ? Load::waiting : Load::in_flight;
  }
  uplink_.change(priority_, std::exchange(load_, load), load);
}

bool LinkEnd::send_until(Frame& frame, Time deadline) {
  check_frame_size(frame.size());
  {
    const MutexLock lock(mutex_);
    throw_if_failed();
    while (!protocol_.has_room_for(frame.size())) {
      if (deadline == Time::max()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, deadline)) {
        if (!protocol_.has_room_for(frame.size())) return false;
      }
      throw_if_failed();
    }
  }
  // The lock is not needed for the hash. The room cannot shrink meanwhile, because only this thread
  // sends on this link.
  const FrameHash hash = hash_frame(frame);
  {
    const MutexLock lock(mutex_);
    throw_if_failed();
    protocol_.send(std::move(frame), hash);
    measure(std::chrono::steady_clock::now());
  }
  wake_();
  return true;
}

Frame LinkEnd::receive() {
  std::optional<Frame> frame = receive_until(Time::max());
  // Never empty: receive_until() returns nothing only at its deadline, and there is none.
  return std::move(*frame);
}

std::optional<Frame> LinkEnd::receive_until(Time deadline) {
  std::optional<Frame> frame;
  {
    const MutexLock lock(mutex_);
    while (!(frame = protocol_.take())) {
      throw_if_failed();
      if (deadline == Time::max()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, deadline)) {
        // A frame may have arrived between the deadline and the lock.
        frame = protocol_.take();
        if (!frame) return std::nullopt;
        break;
      }
    }
  }
  wake_();  // the peer's window has room again
  return frame;
}

bool LinkEnd::flush(Time deadline) {
  const MutexLock lock(mutex_);
  while (!protocol_.window().all_received()) {
    throw_if_failed();
    if (!changed_.wait_until(mutex_, deadline)) return protocol_.window().all_received();
  }
  throw_if_failed();
  return true;
}

void LinkEnd::on_arrival(std::function<void()> notify) {
  const MutexLock lock(mutex_);
  on_arrival_ = std::move(notify);
  if (on_arrival_) on_arrival_();
}

void LinkEnd::abort(const LinkError& cause) {
  change([&](LinkProtocol& protocol) { protocol.abort(cause); });
  wake_();
}

LinkState LinkEnd::state() const {
  const MutexLock lock(mutex_);
  LinkState state = protocol_.state();
  state.in_memory = sends_in_memory();
  state.memory_problem = memory_problem_;
  // The meter of a background link would count the time in which the link yields.
  state.bytes_per_second =
      priority_ == Priority::foreground ? rate_.bytes_per_second() : pace_.bytes_per_second();
  return state;
}

void LinkEnd::announce() {
  changed_.notify_all();
  const MutexLock lock(mutex_);
  if (on_arrival_) on_arrival_();
}

template <typename Change>
void LinkEnd::change(Change&& change_protocol) {
  {
    const MutexLock lock(mutex_);
    change_protocol(protocol_);
  }
  announce();
}

void LinkEnd::path_up(Time now, unsigned flow) {
  connection_ = ConnectionBytes();
  change([&](LinkProtocol& protocol) { protocol.path_up(now, flow); });
}

void LinkEnd::path_down(Time now, unsigned flow) {
  change([&](LinkProtocol& protocol) { protocol.path_down(now, flow); });
}

void LinkEnd::close_flow(unsigned flow) {
  const MutexLock lock(mutex_);
  protocol_.close_flow(flow);
}

void LinkEnd::arrived(Time now, const zmq::message_t& message, unsigned flow) {
  std::span<const std::byte> bytes(static_cast<const std::byte*>(message.data()), message.size());
  if (memory_) bytes = memory_->resolve(bytes);
  connection_.follow(message, std::popcount(flows().used) > 1);
  {
    const MutexLock lock(mutex_);
    const std::uint32_t attempt = protocol_.window().attempt();
    protocol_.receive(now, bytes, flow);
    follow_peer_memory();
    measure(now);
    if (protocol_.window().attempt() != attempt) {
      // A new attempt means that bytes in flight were lost, perhaps with the whole path. The new
      // path may be slower, so what was measured does not count. One of several flows may only
      // have stalled.
      if (std::popcount(protocol_.flows()) <= 1) {
        pace_ = BackgroundPace();
        rate_ = RateMeter();
        fragment_ = FragmentSize();
      }
    } else {
      const SendWindow& window = protocol_.window();
      pace_.received(now, window.received_offset(), window.arrived(), uplink_);
    }
    report_to_uplink();
    flow_count_.offer_bbr(connection_.can_use_bbr());
    // Next to cubic bbr gets less than its share, which is what a background link is for.
    const bool wanted = priority_ == Priority::background || flow_count_.wants_bbr();
    connection_.use_bbr(wanted && connection_.can_use_bbr());
  }
  announce();
}

void LinkEnd::tick(Time now) {
  bool failed = false;
  {
    const MutexLock lock(mutex_);
    if (now - protocol_.last_heard() >= kAskConnectionAfter && connection_.grew()) {
      protocol_.receive_part(now);
    }
    protocol_.tick(now);
    report_to_uplink();
    failed = protocol_.error().has_value();
  }
  if (failed) announce();
}

void LinkEnd::record_problem(const std::string& message) {
  change([&](LinkProtocol& protocol) { protocol.record_problem(message); });
}

void LinkEnd::set_peer_address(const std::string& address) {
  change([&](LinkProtocol& protocol) { protocol.set_peer_address(address); });
}

void LinkEnd::close() {
  {
    const MutexLock lock(mutex_);
    protocol_.close();
    report_to_uplink();
  }
  announce();
}

LinkEnd::Time LinkEnd::last_heard() const {
  const MutexLock lock(mutex_);
  return protocol_.last_heard();
}

bool LinkEnd::compose(Time now, zmq::message_t& message) {
  const MutexLock lock(mutex_);
  const std::optional<LinkProtocol::Outgoing> next = protocol_.next(now, fragment_limit(now));
  if (!next) return false;
  if (next->header.kind == MessageKind::fragment) {
    note_fragment(now, next->payload.size());
    // Background links yield to these bytes from now on.
    report_to_uplink();
    if (sends_in_memory() && next->payload.size() >= MemoryTransport::kLeastPayload) {
      memory_->write(next->header, next->payload, protocol_.window().cursor_offset(), message);
      return true;
    }
  }
  write(*next, message);
  return true;
}

bool LinkEnd::compose_heartbeat(Time now, unsigned flow, zmq::message_t& message) {
  const MutexLock lock(mutex_);
  const std::optional<LinkProtocol::Outgoing> next = protocol_.next_heartbeat(now, flow);
  if (next) write(*next, message);
  return next.has_value();
}

}  // namespace strait::net
