#include "tests/memory_links.h"

#include <fmt/format.h>

#include <deque>

#include "framework/mutex.h"
#include "framework/net/inbox.h"
#include "framework/net/wire_format.h"

namespace strait::net {
namespace {

using Kind = LinkError::Kind;
using Time = std::chrono::steady_clock::time_point;

// Shared by both ends. The inbox of a side holds what the other side sent and this one has not
// taken.
struct Room {
  struct Side {
    std::deque<Frame> inbox;
    std::uint64_t inbox_bytes = 0;
    std::uint64_t window_bytes = 0;  // how many bytes this side may have in the other's inbox
    std::optional<LinkError> error;
    LinkState state;
    std::function<void()> on_arrival;  // of the inbox of this side; empty: none
  };
  Mutex mutex;
  Condition changed;
  std::array<Side, 2> sides STRAIT_GUARDED_BY(mutex);
};

class MemoryLinkEnd final : public InboxLink {
 public:
  MemoryLinkEnd(std::shared_ptr<Room> room, std::size_t side)
      : room_(std::move(room)), side_(side) {}
  ~MemoryLinkEnd() override {
    end_both({Kind::lost, "this end was closed"}, Kind::lost, "closed its end");
  }
  MemoryLinkEnd(const MemoryLinkEnd&) = delete;
  MemoryLinkEnd& operator=(const MemoryLinkEnd&) = delete;

  bool send_until(Frame& frame, Time deadline) override {
    check_frame_size(frame.size());
    const MutexLock lock(room_->mutex);
    Room::Side& mine = room_->sides[side_];
    Room::Side& theirs = room_->sides[1 - side_];
    throw_if_failed();
    while (!has_room_for(frame.size())) {
      if (deadline == Time::max()) {
        room_->changed.wait(room_->mutex);
      } else if (!room_->changed.wait_until(room_->mutex, deadline) &&
                 !has_room_for(frame.size())) {
        return false;
      }
      throw_if_failed();
    }
    mine.state.sent_bytes += frame.size();
    theirs.state.received_bytes += frame.size();
    theirs.state.last_heard = theirs.state.last_data = std::chrono::steady_clock::now();
    theirs.inbox_bytes += frame.size();
    theirs.inbox.push_back(std::move(frame));
    // Both ends wait on this condition, so all are woken.
    room_->changed.notify_all();
    if (theirs.on_arrival) theirs.on_arrival();
    return true;
  }

  Frame receive() override {
    std::optional<Frame> frame = receive_until(Time::max());
    // Nothing comes back only after the deadline, and there is none.
    return std::move(*frame);
  }

  std::optional<Frame> receive_until(Time deadline) override {
    const MutexLock lock(room_->mutex);
    Room::Side& mine = room_->sides[side_];
    while (mine.inbox.empty()) {
      throw_if_failed();
      if (deadline == Time::max()) {
        room_->changed.wait(room_->mutex);
      } else if (!room_->changed.wait_until(room_->mutex, deadline) && mine.inbox.empty()) {
        return std::nullopt;
      }
    }
    Frame frame = std::move(mine.inbox.front());
    mine.inbox.pop_front();
    mine.inbox_bytes -= frame.size();
    room_->changed.notify_all();
    return frame;
  }

  void on_arrival(std::function<void()> notify) override {
    const MutexLock lock(room_->mutex);
    Room::Side& mine = room_->sides[side_];
    mine.on_arrival = std::move(notify);
    if (mine.on_arrival) mine.on_arrival();
  }

  // What was sent is in the peer's memory already.
  bool flush(Time /*deadline*/) override {
    const MutexLock lock(room_->mutex);
    throw_if_failed();
    return true;
  }

  void abort(const LinkError& cause) override {
    end_both(cause, Kind::aborted, std::string("ended the link: ") + cause.what());
  }

  LinkState state() const override {
    const MutexLock lock(room_->mutex);
    LinkState state = room_->sides[side_].state;
    state.window_bytes = room_->sides[1 - side_].inbox_bytes;
    state.connected = !room_->sides[side_].error;
    return state;
  }

 private:
  bool has_room_for(std::uint64_t frame_bytes) const STRAIT_REQUIRES(room_->mutex) {
    // As on a wire: a frame larger than the window passes alone, and empty frames cost a header.
    const Room::Side& theirs = room_->sides[1 - side_];
    if (theirs.inbox.empty()) return true;
    const std::uint64_t used = theirs.inbox_bytes + theirs.inbox.size() * kHeaderBytes;
    return used + frame_bytes + kHeaderBytes <= room_->sides[side_].window_bytes;
  }

  void throw_if_failed() const STRAIT_REQUIRES(room_->mutex) {
    if (room_->sides[side_].error) throw LinkError(*room_->sides[side_].error);
  }

  void end_both(const LinkError& here, Kind there, const std::string& words) {
    const MutexLock lock(room_->mutex);
    Room::Side& mine = room_->sides[side_];
    Room::Side& theirs = room_->sides[1 - side_];
    if (!mine.error) mine.error = here;
    if (!theirs.error) {
      theirs.error =
          LinkError(there, fmt::format("{}: {} {}", theirs.state.name, theirs.state.peer, words));
    }
    room_->changed.notify_all();
    for (const Room::Side& side : room_->sides) {
      if (side.on_arrival) side.on_arrival();
    }
  }

  const std::shared_ptr<Room> room_;
  const std::size_t side_;
};

GreetingSelf self_of(const MemoryEnd& end) {
  GreetingSelf self;
  self.hello.name = end.name;
  self.hello.terms = end.options.terms;
  self.run = end.run;
  self.generation = end.generation;
  self.link = end.options.name;
  self.peer = end.options.peer;
  return self;
}

// The left end says hello and the right one judges it, like opener and answerer on a wire. On a
// wire a refusing end would wait for another peer; here there is none.
void greet(const MemoryEnd& left, const MemoryEnd& right, std::array<Room::Side, 2>& sides) {
  const GreetingSelf opener = self_of(left);
  GreetingResult outcome =
      judge_greeting(self_of(right), opener.run, opener.generation, opener.hello);
  if (outcome.agreed()) {
    const GreetingSelf answerer = self_of(right);
    outcome = judge_greeting(opener, answerer.run, answerer.generation, answerer.hello);
    std::swap(outcome.refusal, outcome.fatal);
  }
  if (outcome.agreed()) return;
  const auto lost = [](const MemoryEnd& end) {
    return LinkError(
        Kind::lost,
        fmt::format("{}: {} was refused or left, and no other process can come to a memory link",
                    end.options.name, end.options.peer.describe()));
  };
  sides[0].error = outcome.refusal ? *outcome.refusal : lost(left);
  sides[1].error = outcome.fatal ? *outcome.fatal : lost(right);
}

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> memory_link(const MemoryEnd& left,
                                                                    const MemoryEnd& right) {
  auto room = std::make_shared<Room>();
  {
    const MutexLock lock(room->mutex);
    const std::array<const MemoryEnd*, 2> ends{&left, &right};
    for (std::size_t i = 0; i < ends.size(); ++i) {
      Room::Side& side = room->sides[i];
      side.window_bytes = ends[i]->options.window_bytes;
      side.state.name = ends[i]->options.name;
      side.state.peer = ends[i]->options.peer.describe();
      side.state.last_heard = side.state.last_data = std::chrono::steady_clock::now();
    }
    greet(left, right, room->sides);
  }
  return {std::make_unique<MemoryLinkEnd>(room, 0), std::make_unique<MemoryLinkEnd>(room, 1)};
}

}  // namespace strait::net
