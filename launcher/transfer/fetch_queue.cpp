#include "launcher/transfer/fetch_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "framework/store/store_error.h"
#include "launcher/base/user_error.h"

namespace strait::transfer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kAskWriterAgain{200};

}  // namespace

FetchQueue::FetchQueue(ContentStore& store, ChunkSource& shelf, FetchPorts ports,
                     std::chrono::seconds patience, RateLimit limit)
    : store_(store), shelf_(shelf), ports_(std::move(ports)), patience_(patience), limit_(limit) {}

void FetchQueue::start(std::uint64_t number, FetchRequest order, Done done) {
  Fetch fetch;
  fetch.number = number;
  fetch.id = order.table.id();
  fetch.order = std::move(order);
  fetch.done = std::move(done);
  fetches_.push_back(std::move(fetch));
}

void FetchQueue::forget(std::uint64_t number) {
  for (auto fetch = fetches_.begin(); fetch != fetches_.end(); ++fetch) {
    if (fetch->number != number || fetch->forgotten) continue;
    fetch->forgotten = true;
    fetch->done = [](const std::exception_ptr&, std::uint64_t) {};
    // What another thread works on ends when that thread is done with it.
    if (fetch->state == State::waiting || fetch->state == State::fetching) end(fetch, nullptr);
    return;
  }
}

void FetchQueue::joined(std::size_t peer, bool spared, Time now) {
  if (peer >= sources_.size()) {
    sources_.resize(peer + 1);
    paces_.resize(peer + 1);
  }
  sources_[peer] = {true, spared, std::nullopt};
  paces_[peer] = {};
  for (Fetch& fetch : fetches_) {
    if (fetch.state == State::fetching) seek(peer, fetch, now);
  }
}

void FetchQueue::gone(std::size_t peer, const std::string& words) {
  sources_.at(peer).there = false;
  paces_[peer] = {};
  const bool nobody = std::none_of(sources_.begin(), sources_.end(),
                                   [](const Seeking& source) { return source.there; });
  for (auto next = fetches_.begin(); next != fetches_.end();) {
    const auto fetch = next++;
    if (fetch->state != State::fetching) continue;
    fetch->plan->lost(peer);
    if (!nobody) continue;
    end(fetch, std::make_exception_ptr(
                   base::UserError(base::ExitCode::peer_lost, what_is_missing(*fetch) + ": " + words)));
  }
}

FetchQueue::Place FetchQueue::fetching(const std::string& id) {
  return std::find_if(fetches_.begin(), fetches_.end(), [&id](const Fetch& fetch) {
    return fetch.state == State::fetching && fetch.id == id;
  });
}

void FetchQueue::hear(std::size_t peer, const ship::Have& have, Time now) {
  if (sources_.at(peer).since) {
    paces_[peer].round_trip(now - *sources_[peer].since);
    sources_[peer].since.reset();
  }
  const auto fetch = fetching(have.id);
  if (fetch == fetches_.end()) return;
  if (!fetch->plan->has(peer, have.runs)) {
    throw ship::MessageError("it says it has chunks that the file does not have");
  }
}

void FetchQueue::hear(std::size_t peer, const ship::Chunk& chunk, Time now) {
  if (paces_.at(peer).outstanding() > 0) paces_[peer].answered(now, chunk.content.size());
  const auto fetch = fetching(chunk.id);
  // It was asked for by a fetch that has ended since.
  if (fetch == fetches_.end() || !fetch->plan->arrived(peer, chunk.chunk)) {
    repeated_bytes_ += chunk.content.size();
    return;
  }
  fetch->moved = now;
  try {
    if (!fetch->landing->file().write(chunk.chunk, chunk.content)) {
      throw ship::MessageError("it sent a chunk that does not have the promised hash");
    }
  } catch (const store::StoreError&) {
    end(fetch, std::current_exception());
    return;
  }
  fetch->fetched += chunk.content.size();
  fetched_bytes_ += chunk.content.size();
  if (fetch->landing->held()) {
    shelf_.add(chunk.id, chunk.chunk);
    ports_.announce(chunk.id, {{chunk.chunk, 1}});
  }
  if (fetch->plan->done()) finish(fetch);
}

void FetchQueue::hear(std::size_t peer, const ship::Elsewhere& elsewhere, Time now) {
  if (paces_.at(peer).outstanding() > 0) paces_[peer].let_go();
  const auto fetch = fetching(elsewhere.id);
  if (fetch == fetches_.end()) return;
  fetch->plan->elsewhere(peer, elsewhere.chunk, ports_.peer_called(elsewhere.process), now);
}

void FetchQueue::hear(std::size_t peer, const ship::Missing& missing) {
  if (paces_.at(peer).outstanding() > 0) paces_[peer].let_go();
  const auto fetch = fetching(missing.id);
  if (fetch != fetches_.end()) fetch->plan->missing(peer, missing.chunk);
}

void FetchQueue::pump(Time now) {
  for (auto next = fetches_.begin(); next != fetches_.end();) {
    const auto fetch = next++;
    if (fetch->state == State::waiting && may_begin(fetch, now)) open(fetch);
    if (fetch->state == State::fetching) end_where_stuck(fetch, now);
  }
  std::vector<std::size_t> nearest_first;
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (sources_[peer].there) nearest_first.push_back(peer);
  }
  std::stable_sort(nearest_first.begin(), nearest_first.end(), [this](auto a, auto b) {
    return paces_[a].round_trip() < paces_[b].round_trip();
  });
  for (const std::size_t peer : nearest_first) {
    while (paces_[peer].room() > 0 && limit_.due() <= now && ask_one(peer, now)) {
    }
  }
}

// One fetch of a content at a time: the next finds what the one before has brought.
bool FetchQueue::may_begin(Place fetch, Time now) {
  const auto first = std::find_if(fetches_.begin(), fetches_.end(),
                                  [&](const Fetch& other) { return other.id == fetch->id; });
  return first == fetch && now >= fetch->retry_at;
}

void FetchQueue::open(Place fetch) {
  fetch->state = State::opening;
  const auto error = std::make_shared<std::exception_ptr>();
  const ChunkSource::Offer* offer = shelf_.find(fetch->id);
  const std::filesystem::path local = offer != nullptr ? offer->path : std::filesystem::path();
  ports_.aside(
      [this, fetch, error, local] {
        try {
          fetch->landing = DestinationFile::open(store_, fetch->order, local);
        } catch (const std::exception&) {
          *error = std::current_exception();
        }
      },
      [this, fetch, error] { opened(fetch, *error); });
}

void FetchQueue::opened(Place fetch, const std::exception_ptr& error) {
  if (error || fetch->forgotten) {
    end(fetch, error);
    return;
  }
  const Time now = Clock::now();
  if (fetch->landing == nullptr) {
    fetch->state = State::waiting;
    fetch->retry_at = now + kAskWriterAgain;
    return;
  }
  PartialFile& file = fetch->landing->file();
  if (const auto held = fetch->landing->held()) {
    held_.push_back(held);
    shelf_.put({file.table(), file.path(), file.chunks(), held});
    ports_.announce(fetch->id, file.chunks().runs());
  }
  ChunkSet lacking = fetch->order.chunks;
  lacking.erase(file.chunks());
  fetch->plan.emplace(std::move(lacking),
                      static_cast<std::uint64_t>(now.time_since_epoch().count()));
  fetch->moved = now;
  fetch->state = State::fetching;
  if (fetch->plan->done()) {
    finish(fetch);
    return;
  }
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (sources_[peer].there) seek(peer, *fetch, now);
  }
}

void FetchQueue::seek(std::size_t peer, Fetch& fetch, Time now) {
  if (sources_[peer].spared) fetch.plan->spare(peer);
  if (paces_[peer].outstanding() == 0) sources_[peer].since = now;
  ports_.say(peer, ship::Seek{fetch.id});
}

bool FetchQueue::ask_one(std::size_t peer, Time now) {
  for (Fetch& fetch : fetches_) {
    if (fetch.state != State::fetching) continue;
    const auto choice = fetch.plan->next(peer, paces_, now);
    if (!choice) continue;
    if (!fetch.plan->waits()) fetch.moved = now;
    fetch.plan->asked(peer, choice->chunk);
    paces_[peer].asked(now);
    limit_.sent(now, fetch.order.table.bytes(choice->chunk));
    ports_.say(peer, ship::Get{fetch.id, choice->chunk, choice->insist});
    return true;
  }
  return false;
}

void FetchQueue::finish(Place fetch) {
  fetch->state = State::finishing;
  const auto error = std::make_shared<std::exception_ptr>();
  ports_.aside(
      [fetch, error] {
        try {
          fetch->landing->finish();
        } catch (const std::exception&) {
          *error = std::current_exception();
        }
      },
      [this, fetch, error] { end(fetch, *error); });
}

void FetchQueue::end(Place fetch, const std::exception_ptr& error) {
  const Fetch ended = std::move(*fetch);
  fetches_.erase(fetch);
  if (ended.landing && ended.state == State::fetching) {
    ports_.aside([landing = ended.landing] { landing->leave(); }, [] {});
  }
  ended.done(error, ended.fetched);
}

void FetchQueue::end_where_stuck(Place fetch, Time now) {
  if (now - fetch->moved <= patience_) return;
  std::string who = "nobody who can be reached has the rest";
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (!sources_[peer].there || !fetch->plan->waits_on(peer)) continue;
    const net::LinkState link = ports_.state(peer);
    // Of a path that is down, the link knows when it is over.
    fetch->moved = link.connected ? std::max(fetch->moved, link.last_data) : now;
    who = fmt::format("{} has sent nothing for {} s", link.peer, patience_.count());
  }
  if (now - fetch->moved <= patience_) return;
  end(fetch,
      std::make_exception_ptr(base::UserError(base::ExitCode::stalled, what_is_missing(*fetch) + ": " + who)));
}

std::string FetchQueue::what_is_missing(const Fetch& fetch) const {
  return fmt::format("{} cannot be fetched: {} of {} bytes are still missing",
                     fetch.order.path.string(), fetch.plan->lacking().bytes(fetch.order.table),
                     fetch.order.chunks.bytes(fetch.order.table));
}

}  // namespace strait::transfer
