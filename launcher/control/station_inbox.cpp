#include "launcher/control/station_inbox.h"

#include <iterator>
#include <utility>

namespace strait::launcher {
namespace {

// A stage that talks without end waits on its own link, not in our memory.
constexpr std::size_t kMostLetters = 4096;

}  // namespace

StationInbox::StationInbox(std::vector<net::Link*> links) : links_(std::move(links)) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    listeners_.emplace_back([this, i] { listen(i); });
  }
}

StationInbox::~StationInbox() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (net::Link* link : links_) {
    link->abort(net::LinkError(net::LinkError::Kind::aborted, "the coordinator has ended"));
  }
  for (std::thread& listener : listeners_) listener.join();
}

std::vector<Letter> StationInbox::take_until(std::chrono::steady_clock::time_point deadline) {
  std::vector<Letter> taken;
  {
    const MutexLock lock(mutex_);
    while (letters_.empty()) {
      if (!changed_.wait_until(mutex_, deadline)) break;
    }
    taken.assign(std::make_move_iterator(letters_.begin()),
                 std::make_move_iterator(letters_.end()));
    letters_.clear();
  }
  changed_.notify_all();
  return taken;
}

void StationInbox::listen(std::size_t station) {
  try {
    while (true) put({station, parse_stage_message(links_[station]->receive())});
  } catch (const net::LinkError& error) {
    put({station, Letter::LinkOver{error}});
  } catch (const ControlError& error) {
    put({station, Letter::Garbled{error.what()}});
  }
}

void StationInbox::put(Letter letter) {
  {
    const MutexLock lock(mutex_);
    while (letters_.size() >= kMostLetters && !closing_) changed_.wait(mutex_);
    letters_.push_back(std::move(letter));
  }
  changed_.notify_all();
}

}  // namespace strait::launcher
