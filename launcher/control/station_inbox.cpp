#include "launcher/control/station_inbox.h"

#include <iterator>
#include <utility>

namespace strait::control {
namespace {

// A stage that talks without end waits on its own link, not in our memory.
constexpr std::size_t kMostLetters = 4096;

}  // namespace

StationInbox::StationInbox(std::vector<net::Link*> links)
    : links_(std::move(links)), retired_(links_.size()) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] == nullptr) {
      listeners_.emplace_back();
    } else {
      listeners_.emplace_back([this, i, link = links_[i]] { listen(i, *link); });
    }
  }
}

StationInbox::~StationInbox() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (net::Link* link : links_) {
    if (link == nullptr) continue;
    link->abort(net::LinkError(net::LinkError::Kind::aborted, "the coordinator has ended"));
  }
  for (std::thread& listener : listeners_) {
    if (listener.joinable()) listener.join();
  }
}

void StationInbox::retire(std::size_t station) {
  if (links_[station] == nullptr) return;
  {
    const MutexLock lock(mutex_);
    retired_[station] = true;
  }
  changed_.notify_all();
  links_[station]->abort(
      net::LinkError(net::LinkError::Kind::aborted, "the process takes no part any more"));
  listeners_[station].join();
  links_[station] = nullptr;
  const MutexLock lock(mutex_);
  std::erase_if(letters_, [&](const Letter& letter) { return letter.station == station; });
}

void StationInbox::listen_to(std::size_t station, net::Link* link) {
  {
    const MutexLock lock(mutex_);
    retired_[station] = false;
  }
  links_[station] = link;
  listeners_[station] = std::thread([this, station, link] { listen(station, *link); });
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

void StationInbox::listen(std::size_t station, net::Link& link) {
  try {
    while (true) put({station, parse_stage_message(link.receive())});
  } catch (const net::LinkError& error) {
    put({station, Letter::LinkOver{error}});
  } catch (const base::MessageError& error) {
    put({station, Letter::Garbled{error.what()}});
  }
}

void StationInbox::put(Letter letter) {
  {
    const MutexLock lock(mutex_);
    while (letters_.size() >= kMostLetters && !closing_ && !retired_[letter.station]) {
      changed_.wait(mutex_);
    }
    if (retired_[letter.station]) return;
    letters_.push_back(std::move(letter));
  }
  changed_.notify_all();
}

}  // namespace strait::control
