#include "launcher/transfer/porter_work.h"

#include <fmt/format.h>

#include <utility>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/failure.h"
#include "launcher/base/user_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{100};
constexpr int kServedAtOnce = 4;  // chunks, before others are listened to again

}  // namespace

PorterWork::PorterWork(TransferAgentOptions options)
    : options_(std::move(options)),
      store_(options_.store, options_.store_limit),
      tables_(options_.store / "tables"),
      limit_(options_.upload_bytes_per_second),
      peers_(inbox_, {[this](std::size_t peer, const ship::Message& said) { hear(peer, said); },
                      [this](std::size_t peer, const std::string& words) { gone(peer, words); }}),
      desk_(store_, shelf_,
            {[this](std::size_t peer, const ship::Message& message) { peers_.say(peer, message); },
             [this](std::size_t peer) { return peers_.state(peer); },
             [this](const std::string& process) -> std::optional<std::size_t> {
               const auto name = net::ProcessName::parse(process);
               return name ? peers_.called(*name) : std::nullopt;
             },
             [this](const std::string& id, const std::vector<ChunkRun>& runs) {
               peers_.announce(id, runs);
             },
             [this](auto work, auto after) { aside(std::move(work), std::move(after)); }},
            options_.patience, RateLimit(options_.download_bytes_per_second)),
      slow_(std::make_unique<FileWorker>()),
      thread_([this] { run(); }) {}

PorterWork::~PorterWork() {
  inbox_.close();
  thread_.join();
  slow_.reset();  // what it worked on belongs to the desk
}

void PorterWork::run() {
  while (!inbox_.closed()) {
    const Clock::time_point now = Clock::now();
    desk_.pump(now);
    serve(now);
    fetched_ = desk_.fetched_bytes();
    repeated_ = desk_.repeated_bytes();
    const auto due = queue_.empty() ? now + kLookAgain : std::min(limit_.due(), now + kLookAgain);
    for (const TaskQueue::Work& work : inbox_.take_until(due)) work();
  }
}

void PorterWork::serve(Clock::time_point now) {
  for (int served = 0; served < kServedAtOnce && limit_.due() <= now; ++served) {
    const auto wish = queue_.next();
    if (!wish) return;
    auto frame = shelf_.take(wish->id, wish->chunk);
    if (!frame) {
      peers_.say(wish->peer, ship::Missing{wish->id, wish->chunk});
      continue;
    }
    const std::uint64_t bytes = shelf_.find(wish->id)->table.bytes(wish->chunk);
    peers_.send(wish->peer, std::move(*frame));
    limit_.sent(now, bytes);
    sent_ += bytes;
  }
}

void PorterWork::joined(const net::ProcessName& name, const std::string& host,
                        std::unique_ptr<net::Link> link) {
  const std::size_t peer = peers_.join(name, host, std::move(link));
  desk_.joined(peer, name == net::ProcessName::coordinator(), Clock::now());
  for (const auto& [listens, endpoint] : endpoints_) introduce(peer, listens);
}

void PorterWork::gone(std::size_t peer, const std::string& words) {
  queue_.gone(peer);
  endpoints_.erase(peer);
  desk_.gone(peer, words);
  std::vector<std::uint64_t> lost;
  for (const auto& [number, told] : told_) {
    if (told.peer == peer) lost.push_back(number);
  }
  for (const std::uint64_t number : lost) {
    fail(number, std::make_exception_ptr(base::UserError(base::ExitCode::peer_lost, words)));
  }
  if (options_.on_event) options_.on_event(fmt::format("shipping with {} has ended", words));
}

void PorterWork::aside(std::function<void()> work, std::function<void()> after) {
  slow_->add([this, work = std::move(work), after = std::move(after)] {
    work();
    inbox_.add(after);
  });
}

void PorterWork::offered(const fs::path& path, ChunkTable table) {
  shelf_.sweep();
  ChunkSet chunks = ChunkSet::all(table.count());
  const std::string id = table.id();
  shelf_.put({std::move(table), path, chunks, nullptr});
  peers_.announce(id, chunks.runs());
}

void PorterWork::tell(const net::ProcessName& keeper, std::uint64_t number,
                      const ship::Message& order, std::shared_ptr<Answer> answer) {
  const auto peer = peers_.called(keeper);
  told_[number] = {peer.value_or(0), std::move(answer)};
  if (peer) {
    peers_.say(*peer, order);
  } else {
    fail(number, std::make_exception_ptr(base::UserError(
                     base::ExitCode::peer_lost, fmt::format("{} is not there", keeper.describe()))));
  }
}

void PorterWork::forget(std::uint64_t number) {
  desk_.forget(number);
  const auto found = told_.find(number);
  if (found == told_.end()) return;
  peers_.say(found->second.peer, ship::Forget{number});
  told_.erase(found);
}

void PorterWork::hear(std::size_t peer, const ship::Message& message) {
  std::visit([&](const auto& said) { on(peer, said); }, message);
}

void PorterWork::on(std::size_t peer, const ship::Seek& seek) {
  peers_.seeks(peer, seek.id);
  const ChunkSource::Offer* offer = shelf_.find(seek.id);
  peers_.say(peer, ship::Have{seek.id, offer ? offer->chunks.runs() : std::vector<ChunkRun>{}});
  if (offer != nullptr) return;
  // It may lie in the store from an earlier run.
  const auto found = std::make_shared<std::optional<ChunkSource::Offer>>();
  aside(
      [this, id = seek.id, found] {
        try {
          if (auto held = store_.find(id)) {
            const PartialFile file(held->data(), held->table());
            *found = {held->table(), held->data(), file.chunks(),
                      std::make_shared<const PinnedContent>(std::move(*held))};
          }
        } catch (const store::StoreError&) {
          // Then it is not here, and somebody else has it.
        }
      },
      [this, id = seek.id, found] {
        if (!*found) return;
        const std::vector<ChunkRun> runs = (*found)->chunks.runs();
        shelf_.put(std::move(**found));
        peers_.announce(id, runs);
      });
}

void PorterWork::on(std::size_t peer, const ship::Get& get) {
  const ServeQueue::Wish wish{peer, get.id, get.chunk, get.insist};
  const ChunkSource::Offer* offer = shelf_.find(get.id);
  if (offer == nullptr || !offer->chunks.contains(get.chunk)) {
    peers_.say(peer, ship::Missing{get.id, get.chunk});
  } else if (const auto other = queue_.given_to_another(wish)) {
    peers_.say(peer, ship::Elsewhere{get.id, get.chunk, peers_.name(*other).text()});
  } else if (!queue_.push(wish)) {
    throw ship::MessageError("it asks for too many chunks at once");
  }
}

void PorterWork::must_be_coordinator(std::size_t peer) const {
  if (options_.takes_orders && peers_.name(peer) == net::ProcessName::coordinator()) return;
  throw ship::MessageError("it gives orders that are not its to give");
}

void PorterWork::refuse(std::size_t peer, std::uint64_t order, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const base::Failure failure = base::describe_failure(known);
    peers_.say(peer, ship::Refused{order, failure.code, failure.text});
  }
}

void PorterWork::on(std::size_t peer, const ship::Have& have) {
  desk_.hear(peer, have, Clock::now());
}

void PorterWork::on(std::size_t peer, const ship::Chunk& chunk) {
  desk_.hear(peer, chunk, Clock::now());
}

void PorterWork::on(std::size_t peer, const ship::Elsewhere& elsewhere) {
  desk_.hear(peer, elsewhere, Clock::now());
}

void PorterWork::on(std::size_t peer, const ship::Missing& missing) { desk_.hear(peer, missing); }

void PorterWork::on(std::size_t peer, const ship::Look& look) {
  must_be_coordinator(peer);
  const auto table = std::make_shared<ChunkTable>();
  const auto error = std::make_shared<std::exception_ptr>();
  aside(
      [this, path = look.path, table, error] {
        try {
          *table = tables_.table(path);
        } catch (const store::StoreError&) {
          *error = std::current_exception();
        }
      },
      [this, peer, look, table, error] {
        if (*error) return refuse(peer, look.order, *error);
        offered(look.path, *table);
        peers_.say(peer, ship::Seen{look.order, std::move(*table)});
      });
}

void PorterWork::on(std::size_t peer, const ship::Bring& bring) {
  must_be_coordinator(peer);
  FetchRequest order{bring.table, ChunkSet(bring.table.count()), bring.path, FetchRequest::As::content};
  if (!order.chunks.insert(bring.runs)) throw ship::MessageError("it orders chunks that are none");
  const std::uint64_t number = next_number();
  numbers_of_orders_[bring.order] = number;
  desk_.start(
      number, std::move(order),
      [this, peer, order = bring.order](const std::exception_ptr& error, std::uint64_t fetched) {
        numbers_of_orders_.erase(order);
        if (error) return refuse(peer, order, error);
        peers_.say(peer, ship::Brought{order, fetched});
      });
}

void PorterWork::obey(std::size_t peer, std::uint64_t order, std::function<void()> work) {
  must_be_coordinator(peer);
  const auto error = std::make_shared<std::exception_ptr>();
  aside(
      [work = std::move(work), error] {
        try {
          work();
        } catch (const store::StoreError&) {
          *error = std::current_exception();
        }
      },
      [this, peer, order, error] {
        if (*error) return refuse(peer, order, *error);
        peers_.say(peer, ship::Brought{order, 0});
      });
}

void PorterWork::on(std::size_t peer, const ship::Put& put) {
  obey(peer, put.order, [put] {
    store::make_directory(fs::path(put.path).parent_path());
    store::replace_file(put.path, put.text);
  });
}

void PorterWork::on(std::size_t peer, const ship::Prune& prune) {
  obey(peer, prune.order, [prune] {
    std::vector<store::Step> steps;
    for (const std::uint64_t step : prune.steps) {
      steps.push_back(store::Step{static_cast<std::int64_t>(step)});
    }
    store::prune_all_but(prune.path, steps);
  });
}

void PorterWork::on(std::size_t peer, const ship::Rewind& rewind) {
  obey(peer, rewind.order, [rewind] {
    store::remove_newer(rewind.path, store::Step{static_cast<std::int64_t>(rewind.step)});
  });
}

// Of two keepers the one with the greater name dials.
void PorterWork::introduce(std::size_t peer, std::size_t listens) {
  if (!peers_.there(peer) || !(peers_.name(listens) < peers_.name(peer))) return;
  peers_.say(peer, ship::Neighbour{peers_.name(listens).text(), peers_.host(listens),
                                   endpoints_.at(listens)});
}

void PorterWork::on(std::size_t peer, const ship::Listening& listening) {
  if (options_.takes_orders) throw ship::MessageError("it takes a keeper for the launcher");
  endpoints_[peer] = listening.endpoint;
  for (std::size_t other = 0; other < peers_.size(); ++other) introduce(other, peer);
}

void PorterWork::on(std::size_t peer, const ship::Neighbour& neighbour) {
  must_be_coordinator(peer);
  const auto name = net::ProcessName::parse(neighbour.process);
  if (!name) throw ship::MessageError("it names a process that is none");
  if (options_.on_neighbour) options_.on_neighbour(*name, neighbour.host, neighbour.endpoint);
}

void PorterWork::listens(const std::string& endpoint) {
  if (const auto launcher = peers_.called(net::ProcessName::coordinator())) {
    peers_.say(*launcher, ship::Listening{endpoint});
  }
}

void PorterWork::on(std::size_t peer, const ship::Forget& forget) {
  must_be_coordinator(peer);
  const auto number = numbers_of_orders_.extract(forget.order);
  if (!number.empty()) desk_.forget(number.mapped());
}

template <class T>
void PorterWork::fulfil(std::size_t peer, std::uint64_t order, const T& value) {
  const auto found = told_.find(order);
  if (found == told_.end()) return;  // forgotten meanwhile
  auto* promise = std::get_if<std::promise<T>>(found->second.answer.get());
  if (found->second.peer != peer || promise == nullptr) {
    throw ship::MessageError("it answers what it was not asked");
  }
  promise->set_value(value);
  told_.erase(found);
}

void PorterWork::on(std::size_t peer, const ship::Seen& seen) {
  fulfil(peer, seen.order, seen.table);
}

void PorterWork::on(std::size_t peer, const ship::Brought& brought) {
  fulfil(peer, brought.order, brought.fetched);
}

void PorterWork::on(std::size_t peer, const ship::Refused& refused) {
  const auto found = told_.find(refused.order);
  if (found == told_.end()) return;
  if (found->second.peer != peer) throw ship::MessageError("it answers what it was not asked");
  fail(refused.order,
       std::make_exception_ptr(
           base::UserError(refused.code, fmt::format("host {}: {}", peers_.host(peer), refused.text))));
}

void PorterWork::fail(std::uint64_t order, const std::exception_ptr& error) {
  auto told = told_.extract(order);
  std::visit([&error](auto& promise) { promise.set_exception(error); }, *told.mapped().answer);
}

}  // namespace strait::transfer
