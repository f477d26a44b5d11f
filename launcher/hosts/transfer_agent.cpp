#include "launcher/hosts/transfer_agent.h"

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

constexpr int kFetchesAtOnce = 4;  // so that small files do not wait for each other
// A new link is not up yet, which does not mean that its host is lost.
constexpr std::chrono::seconds kConnecting{10};

// Replies with what `work` returns, or with its error.
template <class Work>
void answer(const OnFileReply& on_reply, const Work& work) {
  try {
    on_reply(work());
  } catch (const std::exception& error) {
    on_reply(base::describe_failure(error));
  }
}

// Fulfils the promise with `take` of the expected reply, or with the error.
template <class Reply, class Value, class Take>
OnFileReply fulfil(std::shared_ptr<std::promise<Value>> promise, Take take) {
  return [promise = std::move(promise), take](const FileReply& reply) {
    if (const auto* expected = std::get_if<Reply>(&reply)) {
      return promise->set_value(std::invoke(take, *expected));
    }
    const auto* failed = std::get_if<base::Failure>(&reply);
    promise->set_exception(
        failed != nullptr ? std::make_exception_ptr(base::UserError(failed->code, failed->text))
                          : std::make_exception_ptr(base::MessageError(
                                "protocol error: not the reply to the request")));
  };
}

}  // namespace

TransferAgent::TransferAgent(TransferAgentOptions options)
    : options_(std::move(options)),
      store_(options_.store),
      peers_({[this](std::size_t peer, message::Message received) {
                receive(peer, std::move(received));
              },
              [this](std::size_t peer, const std::string& cause) { disconnected(peer, cause); }}),
      server_(peers_, options_.upload_bytes_per_second, options_.stall_timeout),
      fetcher_(store_, server_, peers_, options_.stall_timeout,
               options_.download_bytes_per_second) {
  if (options_.ask) return;
  file_worker_ = std::make_unique<Workers>(1);
  fetch_workers_ = std::make_unique<Workers>(kFetchesAtOnce);
}

// Closes links first, so that no thread blocks on one; then ends the threads that use other parts.
TransferAgent::~TransferAgent() {
  peers_.close();
  fetcher_.close();
  server_.stop();
  file_worker_.reset();
  fetch_workers_.reset();
}

void TransferAgent::add_peer(const net::ProcessName& peer, const std::string& host,
                             std::unique_ptr<net::Link> link, const std::string& key) {
  peers_.add(peer, host, std::move(link), key);
}

void TransferAgent::remove_peer(const net::ProcessName& name, const std::string& cause) {
  if (const auto peer = peers_.find(name)) peers_.drop(*peer, cause);
}

// On the receiving thread. Wait has done its work by its arrival, which the link notes.
void TransferAgent::receive(std::size_t peer, message::Message received) {
  if (const auto* get = std::get_if<message::Get>(&received)) {
    server_.request(peer, *get);
  } else if (auto* chunk = std::get_if<message::Chunk>(&received)) {
    fetcher_.receive(peer, std::move(*chunk));
  } else if (const auto* missing = std::get_if<message::Missing>(&received)) {
    fetcher_.receive(peer, *missing);
  }
}

void TransferAgent::disconnected(std::size_t peer, const std::string& cause) {
  server_.remove_peer(peer);
  fetcher_.remove_peer(peer, cause);
  if (options_.on_event) options_.on_event(fmt::format("transfer link closed: {}", cause));
}

ChunkTable TransferAgent::offer(const fs::path& path) {
  ChunkTable table = store_.table_of(path);
  server_.offer(table, path);
  return table;
}

std::future<ChunkTable> TransferAgent::stat(const net::ProcessName& host, const fs::path& path) {
  const auto promise = std::make_shared<std::promise<ChunkTable>>();
  options_.ask(host, Stat{path.string()}, fulfil<ChunkTable>(promise, std::identity()));
  return promise->get_future();
}

std::future<std::uint64_t> TransferAgent::ask(const net::ProcessName& host,
                                              const FileRequest& request) {
  const auto promise = std::make_shared<std::promise<std::uint64_t>>();
  options_.ask(host, request, fulfil<Done>(promise, &Done::fetched));
  return promise->get_future();
}

std::future<std::uint64_t> TransferAgent::fetch_on(const net::ProcessName& host,
                                                   const FetchRequest& request,
                                                   const std::optional<net::ProcessName>& source) {
  const bool file = request.as == FetchRequest::As::file;
  const Fetch fetch{request.table, file ? std::vector<ChunkRun>() : request.chunks.runs(),
                    request.path.string(), source};
  if (!source) return ask(host, fetch);
  const auto promise = std::make_shared<std::promise<std::uint64_t>>();
  link_hosts(*source, host, [ask = options_.ask, host, fetch, promise] {
    ask(host, fetch, fulfil<Done>(promise, &Done::fetched));
  });
  return promise->get_future();
}

// Of two host agents the one with the greater name connects, so that there is one link. The replies
// may come when this object has ended.
void TransferAgent::link_hosts(const net::ProcessName& one, const net::ProcessName& other,
                               const std::function<void()>& then) const {
  const auto& [lower, greater] = std::minmax(one, other);
  const auto listens = peers_.find(lower);
  const auto connects = peers_.find(greater);
  // A lost host would not reply until its link gives up. One that has just come is still
  // connecting.
  const auto is_up = [this](const auto& peer) {
    return peer && (peers_.state(*peer).connected ||
                    std::chrono::steady_clock::now() - peers_.added(*peer) < kConnecting);
  };
  if (!is_up(listens) || !is_up(connects)) return then();
  const LinkWith connect{lower, peers_.key(*listens), peers_.host(*listens)};
  options_.ask(lower, LinkWith{greater, peers_.key(*connects), peers_.host(*connects)},
               [ask = options_.ask, greater = greater, connect, then](const FileReply& reply) {
                 const auto* accepts = std::get_if<hosts::ListensAt>(&reply);
                 if (accepts != nullptr && !accepts->endpoint.empty()) {
                   LinkWith to = connect;
                   to.endpoint = accepts->endpoint;
                   ask(greater, to, [](const FileReply&) {});
                 }
                 then();
               });
}

std::future<std::uint64_t> TransferAgent::put(const net::ProcessName& host, const fs::path& path,
                                              const std::string& text) {
  return ask(host, Put{path.string(), text});
}

std::future<std::uint64_t> TransferAgent::prune(const net::ProcessName& host,
                                                const fs::path& run_directory,
                                                const std::vector<store::Step>& steps) {
  return ask(host, Prune{.path = run_directory.string(), .steps = steps});
}

std::future<std::uint64_t> TransferAgent::rewind(const net::ProcessName& host,
                                                 const fs::path& run_directory, store::Step step) {
  return ask(host, Prune{.path = run_directory.string(), .resumed = step});
}

void TransferAgent::perform(Stat stat, OnFileReply on_reply) {
  file_worker_->add([this, stat = std::move(stat), on_reply = std::move(on_reply)] {
    answer(on_reply, [&] { return offer(stat.path); });
  });
}

void TransferAgent::perform(Fetch fetch, OnFileReply on_reply) {
  ChunkSet chunks(fetch.table.count());
  if (!chunks.insert(fetch.runs)) {
    throw base::MessageError("protocol error: chunk runs beyond the end of the file");
  }
  std::vector<net::ProcessName> sources;
  if (fetch.source) sources.push_back(*fetch.source);
  const bool content = !fetch.runs.empty();
  if (content) {
    sources.push_back(net::ProcessName::coordinator());
    // Now, and not when it begins: the launcher may send another host here at once.
    server_.expect(fetch.table, chunks);
  }
  fetch_workers_->add(
      [this, fetch = std::move(fetch), on_reply = std::move(on_reply), sources, chunks, content] {
        answer(on_reply, [&] {
          const FetchRequest request =
              content ? FetchRequest{fetch.table, chunks, fetch.path, FetchRequest::As::content}
                      : FetchRequest{fetch.table, ChunkSet::all(fetch.table.count()), fetch.path,
                                     FetchRequest::As::file};
          return Done{fetcher_.fetch(request, sources, [] {})};
        });
        if (content) server_.ended(fetch.table.id());
      });
}

void TransferAgent::perform(Put put, OnFileReply on_reply) {
  file_worker_->add([put = std::move(put), on_reply = std::move(on_reply)] {
    answer(on_reply, [&] {
      store::make_directory(fs::path(put.path).parent_path());
      store::replace_file(put.path, put.text);
      return Done{};
    });
  });
}

void TransferAgent::perform(Prune prune, OnFileReply on_reply) {
  file_worker_->add([prune = std::move(prune), on_reply = std::move(on_reply)] {
    answer(on_reply, [&] {
      if (prune.resumed) {
        store::set_aside_newer(prune.path, *prune.resumed, store::Uncommitted::set_aside);
      }
      const store::Pruned pruned = store::prune_all_but(prune.path, prune.steps);
      if (pruned.left.empty()) return Done{};
      throw store::StoreError(store::StoreError::Kind::storage_io, pruned.left.front().reason);
    });
  });
}

}  // namespace strait::transfer
